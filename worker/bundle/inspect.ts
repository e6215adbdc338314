/**
 * Which exports of bundled code are workflows: the code is evaluated once, in a context of its
 * own, with a runtime that can make workflows and nothing else.
 */
import { createContext, runInContext } from "node:vm";
import * as runtime from "#sdk/runtime";
import { workflowMark } from "#sdk/runtime/workflow";
import { BundleError } from "./bundle-error.ts";

/** What the code may use while it is evaluated for no run: values of a run that does not exist. */
const idle = {
  now: () => 0,
  random: () => 0,
  uuid: () => "00000000-0000-4000-8000-000000000000",
  query: () => {},
  log: { debug() {}, info() {}, warn() {}, error() {} },
  workflowInfo: () => ({
    run: "inspect:inspect",
    namespace: "inspect",
    instance: "inspect",
    generation: 1,
    type: "",
    bundle: "",
    startedMs: 0,
  }),
};

/**
 * Evaluates the two scripts of an artefact; the result lists the workflows in one of main's
 * exported modules. Throws `BundleError`.
 */
export function workflowsOf(main: string, dependencies: string): (module: string) => string[] {
  const module = { exports: {} as Record<string, Record<string, unknown>> };
  try {
    evaluate(main, dependencies, module);
  } catch (error) {
    // Errors of the other context are no instances of this one's Error.
    const { name, message } = error as Partial<Error>;
    throw new BundleError(
      [`the code fails while its modules are evaluated: ${message === undefined ? String(error) : `${name}: ${message}`}`],
      { cause: error },
    );
  }
  return (name) => {
    const exports = module.exports[name] ?? {};
    return Object.keys(exports)
      .filter((key) => isWorkflow(exports[key]))
      .sort();
  };
}

function evaluate(main: string, dependencies: string, module: { readonly exports: object }): void {
  const console = { debug() {}, log() {}, info() {}, warn() {}, error() {}, trace() {} };
  const timers = { setTimeout: () => 0, clearTimeout() {}, setInterval: () => 0, clearInterval() {}, queueMicrotask() {} };
  const context = createContext({ console, performance, crypto, ...timers });
  const global = runInContext("globalThis", context) as object;
  const runtimeModule = Object.defineProperty({ ...runtime, ...idle }, "__esModule", { value: true });
  const table: Table = {};
  const require: Require = (name) => (name === "@hopskip/runtime" ? runtimeModule : asModule(table[name]?.(), name));
  const script = runInContext(dependencies, context, { filename: "dependencies.js" }) as { shared: Load; perRun: Load };
  script.shared(require, table, global);
  script.perRun(require, table, global);
  const run = runInContext(main, context, { filename: "workflow.js" }) as (...parts: unknown[]) => void;
  run(require, module, module.exports, global, global, global);
}

type Load = (require: Require, exports: Table, global: object) => void;
type Require = (name: string) => unknown;
type Table = Record<string, () => object>;

function isWorkflow(value: unknown): boolean {
  return typeof value === "function" && workflowMark in value;
}

function asModule(namespace: object | undefined, name: string): object {
  if (namespace === undefined) throw new Error(`The bundle has no module "${name}"`);
  const module: Record<string, unknown> = {};
  for (const key of Object.getOwnPropertyNames(namespace)) {
    if (key !== "__esModule") module[key] = (namespace as Record<string, unknown>)[key];
  }
  return Object.defineProperty(module, "__esModule", { value: true });
}
