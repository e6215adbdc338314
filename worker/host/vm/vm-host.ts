/**
 * Runs workflow code inside this process, in realms of `node:vm`: for tests. Bundles, kernel,
 * records and replay are those of production; the walls are not (see ADR 30): there is no limit of
 * time and memory, and who means to get out of a realm of `node:vm` can.
 */
import { InvariantError } from "#core/base";
import type { FailureInit } from "#proto";
import { type Artefact, decodeArtefact } from "../../bundle/artefact.ts";
import type { Activation, BundleSource, Delivery, GuestHost, GuestRun, QueryResult } from "../guest-host.ts";
import { callOf } from "../v8/kernel-call.ts";
import { deliveryFlag, deliveryKind } from "../v8/protocol.ts";
import { type Records, readRecords } from "../v8/records.ts";
import { StackMapper } from "../v8/stack-mapper.ts";
import { type RealmCall, RealmError, VmRealm } from "./vm-realm.ts";

export interface VmHostOptions {
  readonly source: BundleSource;
  /** Text of the guest kernel. */
  readonly kernel: string;
  readonly onLog?: (line: { readonly run: string; readonly type: string; readonly level: string; readonly message: string }) => void;
}

interface Bundle {
  readonly realm: VmRealm;
  readonly artefact: Artefact;
}

interface OpenRun {
  readonly run: GuestRun;
  bundle: Bundle | undefined;
}

const decoder = new TextDecoder();

export class VmHost implements GuestHost {
  private readonly options: VmHostOptions;
  private readonly runs = new Map<number, OpenRun>();
  /** One realm a bundle and namespace, as in the dense lane. */
  private readonly bundles = new Map<string, Promise<Bundle>>();
  private readonly mapper = new StackMapper();

  constructor(options: VmHostOptions) {
    this.options = options;
  }

  open(run: GuestRun): void {
    if (this.runs.has(run.key)) throw new InvariantError(`The key ${run.key} is in use by run ${this.runs.get(run.key)?.run.run}`);
    this.runs.set(run.key, { run, bundle: undefined });
  }

  has(key: number): boolean {
    return this.runs.has(key);
  }

  async activate(key: number, deliveries: readonly Delivery[]): Promise<Activation> {
    const open = this.runs.get(key);
    if (open === undefined) return { kind: "lost", message: "The run is not open in this host" };
    const failed = open.bundle === undefined ? await this.place(open) : undefined;
    if (failed !== undefined) return failed;
    return this.run(open, open.bundle as Bundle, deliveries);
  }

  async query(key: number, name: string, input: Uint8Array): Promise<QueryResult> {
    const open = this.runs.get(key);
    if (open?.bundle === undefined) return { kind: "lost", message: "The run is not open in this host" };
    const { realm, artefact } = open.bundle;
    const text = name + decoder.decode(input);
    const records = recordsOf(realm, { kind: deliveryKind.query, key, op: name.length, nowMs: 0, flags: deliveryFlag.last, text });
    this.log(open.run, records);
    if (records.spoiled) this.drop(key);
    if (records.answer?.kind === "failed") this.tidy(artefact, records.answer.failure as FailureInit);
    return records.answer ?? { kind: "lost", message: "The run gave no answer" };
  }

  drop(key: number): void {
    const open = this.runs.get(key);
    this.runs.delete(key);
    open?.bundle?.realm.drop(key);
  }

  async close(): Promise<void> {
    this.runs.clear();
    this.bundles.clear();
  }

  private run(open: OpenRun, { realm, artefact }: Bundle, deliveries: readonly Delivery[]): Activation {
    const { run } = open;
    const commands: Extract<Activation, { kind: "ok" }>["commands"] = [];
    for (const [i, delivery] of deliveries.entries()) {
      const { kind, op, head, payload } = callOf(run, delivery);
      const flags = (i === deliveries.length - 1 ? deliveryFlag.last : 0) | (delivery.replay === true ? deliveryFlag.replay : 0);
      const text = payload.length === 0 ? head : head + decoder.decode(payload);
      const records = recordsOf(realm, { kind, key: run.key, op, nowMs: delivery.nowMs, flags, text });
      this.log(run, records);
      if (records.broken !== undefined) {
        this.drop(run.key);
        return { kind: "broken", message: this.mapper.text({ artefact }, records.broken) };
      }
      for (const command of records.commands) {
        if (command.failure !== undefined) this.tidy(artefact, command.failure);
        commands.push(command);
      }
    }
    return { kind: "ok", commands };
  }

  /** Finds the run its realm. Returns why it has none, if so. */
  private async place(open: OpenRun): Promise<Activation | undefined> {
    const { run } = open;
    try {
      const bundle = await this.load(run);
      if (this.runs.get(run.key) !== open) return { kind: "lost", message: "The run was dropped while its code was loaded" };
      open.bundle = bundle;
      return undefined;
    } catch (error) {
      if (this.runs.get(run.key) === open) this.runs.delete(run.key);
      return { kind: error instanceof RealmError ? "broken" : "lost", message: (error as Error).message };
    }
  }

  private load({ bundle, run }: GuestRun): Promise<Bundle> {
    const key = `${run.slice(0, run.indexOf(":"))}/${bundle}`;
    let loading = this.bundles.get(key);
    if (loading === undefined) {
      loading = this.options.source(bundle).then((bytes) => {
        const artefact = decodeArtefact(bytes);
        return { artefact, realm: new VmRealm(this.options.kernel, artefact) };
      });
      this.bundles.set(key, loading);
      loading.catch(() => this.bundles.delete(key));
    }
    return loading;
  }

  /** What is on the stack below the realm is none of the workflow's, and differs from one delivery to the next. */
  private tidy(artefact: Artefact, failure: FailureInit): void {
    for (let at: FailureInit | undefined = failure; at !== undefined; at = at.cause) if (at.stack) at.stack = guestFrames(at.stack);
    this.mapper.failure({ artefact }, failure);
  }

  private log({ run, type }: GuestRun, { logs }: Records): void {
    for (const line of logs) this.options.onLog?.({ run, type, ...line });
  }
}

function guestFrames(stack: string): string {
  const isForeign = (line: string) => /^\s+at /.test(line) && !/\b(workflow|dependencies)\.js:\d/.test(line);
  return stack
    .split("\n")
    .filter((line) => !isForeign(line))
    .join("\n");
}

function recordsOf(realm: VmRealm, call: RealmCall): Records {
  return readRecords(Buffer.from(realm.call(call)));
}
