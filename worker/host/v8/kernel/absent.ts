/**
 * What a workflow can't have: each use throws an error that names it and says what to do.
 *
 * Things that are called or constructed stay functions, so that a library's `typeof` check does
 * not throw; things whose members are used throw when they are touched.
 */
import { DeterminismError } from "#sdk/runtime";
import { currentRun } from "./run.ts";

const inActivity = "move this into an activity";
const called: Record<string, string> = {
  fetch: `network calls belong into an activity: ${inActivity}`,
  XMLHttpRequest: `network calls belong into an activity: ${inActivity}`,
  WebSocket: `network connections belong into an activity: ${inActivity}`,
  EventSource: `network connections belong into an activity: ${inActivity}`,
  Worker: `threads belong into an activity: ${inActivity}`,
  require: "modules are bundled: write an import at the top of the file",
  importScripts: "modules are bundled: write an import at the top of the file",
  setImmediate: "use queueMicrotask(), or sleep() for a durable timer",
  clearImmediate: "use queueMicrotask(), or sleep() for a durable timer",
  requestAnimationFrame: "use sleep() for a durable timer",
  MessageChannel: "use promises within the workflow, and signals from outside",
  BroadcastChannel: "use promises within the workflow, and signals from outside",
  SharedArrayBuffer: "a workflow has one thread: use ArrayBuffer",
  FinalizationRegistry: "when memory is reclaimed differs from one machine to the next: release things in finally",
};
const touched: Record<string, string> = {
  process: `environment and process belong to the machine: pass what is needed as input, or ${inActivity}`,
  Buffer: "use Uint8Array, or strings in base64",
  Bun: `the machine is not reachable from here: ${inActivity}`,
  Deno: `the machine is not reachable from here: ${inActivity}`,
  navigator: `the machine is not reachable from here: ${inActivity}`,
  localStorage: "keep state in variables: they are durable",
  sessionStorage: "keep state in variables: they are durable",
  indexedDB: `storage is not reachable from here: keep state in variables, or ${inActivity}`,
  caches: `storage is not reachable from here: keep state in variables, or ${inActivity}`,
  Atomics: "a workflow has one thread: use plain variables",
};

/** Names that a dependency sees as undefined: it may look for them and do without. */
export const hiddenFromDependencies: readonly string[] = Object.keys(touched);

export function removeAbsent(realm: typeof globalThis): void {
  for (const [name, advice] of Object.entries(called)) define(realm, name, { value: refusing(name, advice), writable: true });
  for (const [name, advice] of Object.entries(touched)) poison(realm, name, advice);
}

/** Put back at each opening of a blob, so it is taken away at each. */
export function removeWebAssembly(realm: typeof globalThis): void {
  poison(realm, "WebAssembly", `its memory could not be kept: ${inActivity}`);
}

function poison(realm: typeof globalThis, name: string, advice: string): void {
  define(realm, name, {
    get() {
      if (currentRun() === undefined) return undefined;
      throw new DeterminismError(`${name} does not exist in a workflow: ${advice}`);
    },
  });
}

function refusing(name: string, advice: string): () => never {
  const refuse = function (): never {
    throw new DeterminismError(`${name} does not exist in a workflow: ${advice}`);
  };
  Object.defineProperty(refuse, "name", { value: name });
  return refuse;
}

function define(realm: typeof globalThis, name: string, descriptor: PropertyDescriptor): void {
  Object.defineProperty(realm, name, { ...descriptor, configurable: true, enumerable: false });
}
