/**
 * A realm of `node:vm` with the guest kernel in it: the same script, called in the same way as the
 * V8 host's native part calls it (native/realm.cc, native/batch.cc).
 *
 * The realm has a queue of microtasks of its own, which runs dry when a script has been evaluated
 * in it. So after each delivery an empty script is: what a guest does depends on the order of its
 * deliveries and not on how they were batched.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { type Context, constants, createContext, Script } from "node:vm";
import type { Artefact } from "../../bundle/artefact.ts";
import { deliveryKind } from "../v8/protocol.ts";

/** What the kernel's `boot` returns. */
interface KernelApi {
  deliver(kind: number, key: number, op: number, nowMs: number, flags: number, text: string): void;
  collect(): string;
  dependencies(script: unknown): string;
  main(script: unknown): string;
  seal(): string;
}

/** One call of the kernel's `deliver`; `text` is the head and the payload. */
export interface RealmCall {
  readonly kind: number;
  readonly key: number;
  readonly op: number;
  readonly nowMs: number;
  readonly flags: number;
  readonly text: string;
}

/** The code of a bundle throws while it is loaded. */
export class RealmError extends Error {
  override name = "RealmError";
}

const nothing = new Script("0");
/** An engine that can gives the realm a global object without traps, which can be frozen whole. */
const ordinaryGlobal = (constants as unknown as { readonly DONT_CONTEXTIFY?: object } | undefined)?.DONT_CONTEXTIFY ?? {};

export class VmRealm {
  private readonly context: Context;
  private readonly api: KernelApi;

  /** Throws `RealmError` where the bundle's packages or its script can't be evaluated. */
  constructor(kernel: string, artefact: Artefact) {
    this.context = createContext(ordinaryGlobal, { name: "hopskip", microtaskMode: "afterEvaluate" });
    const boot = this.evaluate(kernel, "hop:kernel") as (natives: object) => KernelApi;
    // V8's own pair of functions is not to be had here; this carries a value along promise reactions too.
    const carried = new AsyncLocalStorage<unknown>();
    this.api = boot({
      getContinuationPreservedEmbedderData: () => carried.getStore(),
      setContinuationPreservedEmbedderData: (value: unknown) => carried.enterWith(value),
    });
    this.pass("dependencies", artefact.dependencies, "dependencies.js");
    this.pass("main", artefact.main, "workflow.js");
    this.api.seal();
  }

  /** Delivers, lets the run go dry, and returns its records. Throws where the kernel itself fails. */
  call({ kind, key, op, nowMs, flags, text }: RealmCall): string {
    this.api.deliver(kind, key, op, nowMs, flags, text);
    this.goDry();
    return this.api.collect();
  }

  drop(key: number): void {
    this.api.deliver(deliveryKind.drop, key, 0, 0, 0, "");
  }

  private goDry(): void {
    nothing.runInContext(this.context);
  }

  private pass(method: "dependencies" | "main", source: string, name: string): void {
    try {
      this.api[method](this.evaluate(source, name));
      this.goDry();
    } catch (error) {
      throw new RealmError(`${String(error)} (${name})`, { cause: error });
    }
  }

  private evaluate(source: string, filename: string): unknown {
    return new Script(source, { filename }).runInContext(this.context);
  }
}
