/** What every command gets: where to write, what was said for all commands, and the interrupt. */
import { addressText, HopError, namespaceProblem, parseAddress, type RunAddress, type RunId } from "#core/base";
import { parseDuration } from "./duration.ts";
import { type ExitCode, UsageError } from "./failure.ts";
import type { Format, Output } from "./output.ts";

/** Options that every command knows. */
export interface GlobalOptions {
  readonly server?: string;
  readonly namespace?: string;
  readonly output?: Format;
  readonly color?: boolean;
  readonly timeout?: string;
}

export interface Context {
  readonly output: Output;
  /** Aborted by Ctrl-C or a request to end. */
  readonly interrupt: AbortSignal;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** A command's own function. Returns its exit code or throws. */
export type Handler<Options, Operands extends unknown[]> = (context: Context, options: Options, ...operands: Operands) => Promise<ExitCode>;

export const defaultServer = "127.0.0.1:7070";
export const defaultNamespace = "default";

/** `host:port` of the server, or of several nodes of one cluster, in the order in which they are tried. */
export function serverAddresses(options: GlobalOptions, env: Context["env"]): string[] {
  const list = options.server ?? nonEmpty(env.HOP_SERVER) ?? defaultServer;
  const source = options.server === undefined ? "HOP_SERVER" : "--server";
  const addresses = list.split(",").map((each) => each.trim());
  for (const address of addresses) checkAddress(address, source);
  return [...new Set(addresses)];
}

/** Refuses what is no `host:port` (an IPv6 host stands in brackets) and no `unix:path`. */
export function checkAddress(address: string, source: string): void {
  if (address.startsWith("unix:") && address.length > 5) return;
  const match = /^(?:\[[0-9a-fA-F:.]+\]|[^\s:/[\]]+):(\d{1,5})$/.exec(address);
  if (match === null || Number(match[1]) > 65535) {
    throw new UsageError(`Cannot use ${source} ${JSON.stringify(address)}: want host:port, such as ${defaultServer} or [::1]:7070`);
  }
}

export function namespaceName(options: GlobalOptions, env: Context["env"]): string {
  const name = options.namespace ?? nonEmpty(env.HOP_NAMESPACE) ?? defaultNamespace;
  const problem = namespaceProblem(name);
  if (problem !== undefined) throw new UsageError(`Cannot use namespace ${JSON.stringify(name)}: it ${problem}`);
  return name;
}

/**
 * A run as people name it: `namespace:instance`, or the instance alone, which is then looked for
 * in the command's namespace. An instance whose name holds a `:` needs its namespace before it.
 */
export function runId(text: string, options: GlobalOptions, env: Context["env"]): RunId {
  return addressOf(text, options, env).run;
}

/** As `runId`, or one start of the name that was queued, `ticket@namespace:instance`, as a server takes either. */
export function runAddress(text: string, options: GlobalOptions, env: Context["env"]): string {
  return addressText(addressOf(text, options, env));
}

/** A dead letter by its number: `number@namespace:instance`, or without the namespace, which is then the command's. */
export function letterAddress(text: string, options: GlobalOptions, env: Context["env"]): RunAddress {
  const [, number, name = ""] = /^([1-9][0-9]{0,14})@(.+)$/s.exec(text) ?? [];
  if (number === undefined) {
    throw new UsageError(`Cannot use ${JSON.stringify(text)} as a dead letter: want NUMBER@NAMESPACE:INSTANCE`, {
      next: "see them with `hop dlq list`",
    });
  }
  return addressOf(name.includes(":") ? text : `${number}@${namespaceName(options, env)}:${name}`, options, env);
}

function addressOf(text: string, options: GlobalOptions, env: Context["env"]): RunAddress {
  const whole = text.includes(":") ? text : `${namespaceName(options, env)}:${text}`;
  const parsed = parseAddress(whole);
  if ("run" in parsed) return parsed;
  throw new HopError(
    "BAD_REQUEST",
    `Cannot use run id ${JSON.stringify(text)}: it ${parsed.problem.replace(/^its/, "has a bad name:")}; want namespace:instance or an instance name`,
  );
}

/** Milliseconds that --timeout allows; 0 = as long as it takes. */
export function timeoutMs(options: GlobalOptions): number {
  return options.timeout === undefined ? 0 : parseDuration(options.timeout, "--timeout");
}

const nonEmpty = (text: string | undefined) => (text === "" ? undefined : text);

/** Rejects with `InterruptedError` when the interrupt comes first. */
export class InterruptedError extends Error {
  override name = "InterruptedError";
}

export function orInterrupted<T>(interrupt: AbortSignal, work: Promise<T>): Promise<T> {
  if (interrupt.aborted) return Promise.reject(new InterruptedError("Interrupted"));
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const stop = () => reject(new InterruptedError("Interrupted"));
  interrupt.addEventListener("abort", stop, { once: true });
  work.then(resolve, reject).finally(() => interrupt.removeEventListener("abort", stop));
  return promise;
}

interface WholeRange {
  readonly min: number;
  readonly max: number;
  /** What to do where it is another. */
  readonly next?: string;
}

/** A whole number given as an option. */
export const parseCount = (text: string | undefined, name: string, range: WholeRange): number | undefined =>
  text === undefined ? undefined : wholeNumber(text, `--${name}`, range);

export function wholeNumber(text: string, what: string, { min, max, next }: WholeRange): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  throw new UsageError(
    `Cannot use ${what} ${JSON.stringify(text)}: want a whole number from ${min} to ${max}`,
    next === undefined ? {} : { next },
  );
}
