/**
 * The guest kernel: the first script of a realm, and all that the host calls.
 *
 * `boot` locks the realm down and returns the host's entry points; nothing of them is reachable
 * from workflow code. Order: boot, dependencies, main, (blob), seal, then deliveries.
 */
import { install } from "#sdk/runtime/engine";
import { removeAbsent, removeWebAssembly } from "./absent.ts";
import { scopeOperations } from "./cancel.ts";
import { channelOperations } from "./channels.ts";
import { childOperations } from "./children.ts";
import type { Natives } from "./context.ts";
import { bindContext } from "./context.ts";
import { collect, deliver } from "./deliver.ts";
import { freezeIntrinsics, freezeRealm } from "./freeze.ts";
import { keepRealIntl, wrapIntl } from "./intl.ts";
import { methodOperations } from "./methods.ts";
import type { DependencyScript, MainScript } from "./modules.ts";
import { freezeDependencies, loadDependencies, loadMain } from "./modules.ts";
import { engine } from "./operations.ts";
import { rebind } from "./rebind.ts";
import { provideWeb } from "./web/web.ts";

export function boot(natives: Natives) {
  bindContext(natives);
  install({ ...engine, ...channelOperations, ...childOperations, ...methodOperations, ...scopeOperations });
  rebind(globalThis);
  wrapIntl(Intl);
  provideWeb(globalThis);
  removeAbsent(globalThis);
  return {
    deliver,
    collect,
    /** Evaluates the dependencies, then freezes all that runs share. */
    dependencies(script: DependencyScript): string {
      const held = loadDependencies(script);
      freezeIntrinsics(globalThis);
      freezeDependencies();
      return held;
    },
    main(script: MainScript): string {
      loadMain(script);
      return "";
    },
    /** Closes a realm opened from a blob, which V8 has just added to. */
    seal(): string {
      removeWebAssembly(globalThis);
      keepRealIntl();
      freezeRealm(globalThis);
      return "";
    },
  };
}
