/**
 * The parts of a bundle inside the realm.
 *
 * Shared packages are evaluated once and frozen; the other packages and the workflow's own
 * modules are evaluated for each run. When the shared ones can't be evaluated without a run (they
 * read the clock at module level, say), each run evaluates them for itself: slower, and right.
 */
import * as runtime from "#sdk/runtime";
import { hiddenFromDependencies } from "./absent.ts";
import { freezeExports, freezePackage } from "./freeze.ts";

type Require = (name: string) => unknown;
type Table = Record<string, () => object>;
type Load = (require: Require, exports: Table, globalThis: object) => void;

/** Value of the packages' script. */
export interface DependencyScript {
  readonly shared: Load;
  readonly perRun: Load;
  /** Shared packages that change their own objects as they go: only their exports are frozen. */
  readonly open: readonly string[];
}

/** Value of the workflow's script. */
export type MainScript = (
  require: Require,
  module: { exports: object },
  exports: object,
  globalThis: object,
  self: object,
  global: object,
) => void;

let script: DependencyScript | undefined;
/** Undefined: they are evaluated for each run. */
let shared: Map<string, object> | undefined;
let main: MainScript | undefined;
const runtimeModule: object = asModule(runtime);

/** Returns how the packages are held, for the log: `shared`, or why they are not. */
export function loadDependencies(loaded: DependencyScript): string {
  script = loaded;
  const global = lenientGlobal();
  try {
    const modules = new Map<string, object>();
    for (const [name, load] of Object.entries(tableOf(loaded.shared, requireRuntime, global))) modules.set(name, asModule(load()));
    shared = modules;
    return "shared";
  } catch (error) {
    return `evaluated for each run: ${error instanceof Error ? error.message : String(error)}`;
  } finally {
    Object.freeze(global);
  }
}

/** To be called after the intrinsics were frozen: those are frozen in another way. */
export function freezeDependencies(): void {
  // These two must stay as they are until a blob was opened.
  const frozen = new Set<object>([globalThis, Error]);
  freezePackage(runtimeModule, frozen);
  for (const [name, module] of shared ?? []) {
    if (script!.open.some((open) => name === open || name.startsWith(`${open}/`))) freezeExports(module);
    else freezePackage(module, frozen);
  }
}

export function loadMain(loaded: MainScript): void {
  main = loaded;
}

/** Evaluates the workflow's modules for the current run and returns their exports. */
export function evaluateMain(): Record<string, unknown> {
  const module = { exports: {} };
  const own = Object.create(globalThis) as object;
  const visible = { value: own, writable: true, configurable: true };
  Object.defineProperties(own, { globalThis: visible, self: visible, global: visible });
  main!(makeRequire(), module, module.exports, own, own, own);
  return module.exports;
}

function makeRequire(): Require {
  let table: Table | undefined;
  const loaded = new Map<string, object>();
  const require: Require = (name) => {
    if (name === "@hopskip/runtime") return runtimeModule;
    const found = shared?.get(name) ?? loaded.get(name);
    if (found !== undefined) return found;
    table ??= runTable(require);
    const load = Object.hasOwn(table, name) ? table[name] : undefined;
    if (load === undefined) throw new Error(`The bundle has no module "${name}"`);
    const module = asModule(load());
    loaded.set(name, module);
    return module;
  };
  return require;
}

function runTable(require: Require): Table {
  const global = lenientGlobal();
  const own = tableOf(script!.perRun, require, global);
  return shared === undefined ? { ...tableOf(script!.shared, require, global), ...own } : own;
}

function tableOf(load: Load, require: Require, global: object): Table {
  const table: Table = {};
  load(require, table, global);
  return table;
}

function requireRuntime(name: string): unknown {
  if (name === "@hopskip/runtime") return runtimeModule;
  throw new Error(`The bundle has no module "${name}"`);
}

/** A global object for packages: what a workflow can't have is undefined, so that they do without. */
function lenientGlobal(): object {
  const global = Object.create(globalThis) as object;
  for (const name of hiddenFromDependencies) Object.defineProperty(global, name, { value: undefined });
  for (const name of ["globalThis", "self", "global"]) Object.defineProperty(global, name, { value: global });
  return global;
}

/** A module's exports by value, marked as an ES module for the bundler's interop. */
function asModule(namespace: object): object {
  const module: Record<string, unknown> = {};
  for (const name of Object.getOwnPropertyNames(namespace)) {
    if (name !== "__esModule") module[name] = (namespace as Record<string, unknown>)[name];
  }
  Object.defineProperty(module, "__esModule", { value: true });
  return module;
}
