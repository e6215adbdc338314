/** Workflows: plain async functions, marked as entry points. */
import { describe } from "./checks.ts";
import { engine } from "./engine.ts";

/** Marks what `durable` made. Registered, so that sandbox and bundler find it without sharing code. */
export const workflowMark: unique symbol = Symbol.for("hopskip.workflow") as never;

/**
 * A workflow that takes an `I` and results in an `O`. Clients infer both from it:
 * `client.start(trialReminder, user)`.
 */
export interface Workflow<I = unknown, O = unknown> {
  /** Runs the workflow's code inline, as part of the workflow that calls it. */
  (input: I): Promise<O>;
  readonly [workflowMark]: true;
}

/** What a workflow takes, as a client sends it. */
export type WorkflowInput<W> = W extends (input: infer I) => Promise<unknown> ? I : never;
/** What a workflow results in. */
export type WorkflowOutput<W> = W extends (...input: never[]) => Promise<infer O> ? O : never;

/**
 * Makes a workflow of an async function or an async generator. Export it: the export's name is
 * the workflow's type.
 *
 * ```ts
 * export const trialReminder = durable(async (user: User) => {
 *   await sleep(14 * 24 * 60 * 60 * 1000);
 *   await activity("send_email", { to: user.email, template: "trial_ending" });
 * });
 * ```
 *
 * Input and result travel as JSON. The result of a generator is what it returns; the value it
 * yielded last can be read with the query `yielded` while it runs.
 */
export function durable<O>(code: () => AsyncGenerator<unknown, O, void>): Workflow<void, O>;
export function durable<I, O>(code: (input: I) => AsyncGenerator<unknown, O, void>): Workflow<I, O>;
export function durable<O>(code: () => Promise<O>): Workflow<void, O>;
export function durable<I, O>(code: (input: I) => Promise<O>): Workflow<I, O>;
export function durable<I, O>(code: (input: I) => Promise<O> | AsyncGenerator<unknown, O, void>): Workflow<I, O> {
  if (typeof code !== "function") throw new TypeError(`durable() takes an async function, got ${describe(code)}`);
  const workflow = async (input: I): Promise<O> => {
    const running = code(input);
    return isGenerator(running) ? await drain(running) : await running;
  };
  Object.defineProperty(workflow, workflowMark, { value: true });
  Object.defineProperty(workflow, "name", { value: code.name });
  return workflow as Workflow<I, O>;
}

function isGenerator<O>(value: Promise<O> | AsyncGenerator<unknown, O, void>): value is AsyncGenerator<unknown, O, void> {
  return value !== null && typeof value === "object" && Symbol.asyncIterator in value;
}

async function drain<O>(chunks: AsyncGenerator<unknown, O, void>): Promise<O> {
  let last: unknown;
  engine("durable").query("yielded", () => last);
  for (;;) {
    const next = await chunks.next();
    if (next.done === true) return next.value;
    last = next.value;
  }
}
