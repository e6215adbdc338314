/**
 * Payloads from the command line: JSON in place, `@file`, or `-` for standard input.
 *
 * The text is checked to be JSON and passed on as it was written, so that large numbers keep
 * their digits.
 */
import { readFile } from "node:fs/promises";
import { HopError, limits } from "#core/base";
import { UsageError } from "./failure.ts";

/** All of standard input. */
export async function readStdin(): Promise<string> {
  return decodeUtf8(new Uint8Array(await Bun.stdin.arrayBuffer()), "standard input");
}

function decodeUtf8(bytes: Uint8Array, source: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new UsageError(`Cannot read ${source}: it is not UTF-8 text`, { cause: error });
  }
}

/** Text of a file, or of standard input for `-`. */
export async function readText(path: string): Promise<string> {
  if (path === "-") return readStdin();
  let bytes: Uint8Array;
  try {
    bytes = await readFile(path);
  } catch (error) {
    throw new UsageError(`Cannot read ${path}: ${faultText(error)}`, { cause: error });
  }
  return decodeUtf8(bytes, path);
}

/** Why a file operation failed, in a few words. */
export function faultText(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOENT") return "there is no such file";
  if (code === "EISDIR") return "it is a folder";
  if (code === "EACCES" || code === "EPERM") return "access is denied";
  return error instanceof Error ? error.message : String(error);
}

/**
 * Bytes of an `--input` option, or of one that is alike; undefined when it was not given.
 * Throws `UsageError` with line and column where the text is no JSON.
 */
export async function readInput(option: string | undefined, name = "--input"): Promise<Uint8Array | undefined> {
  if (option === undefined) return undefined;
  const isFile = option.startsWith("@");
  const path = isFile ? option.slice(1) : option;
  const text = isFile || option === "-" ? await readText(path) : option;
  const source = option === "-" ? "standard input" : isFile ? path : name;
  const problem = jsonProblem(text);
  if (problem === undefined) return withinLimit(new TextEncoder().encode(text.trim()), source);
  const next = isFile || option === "-" ? undefined : "quote it for the shell: a text is --input '\"Ada\"', a file is --input @file";
  throw new UsageError(`Cannot read ${source} as JSON: ${problem}`, next === undefined ? {} : { next });
}

/** Throws `HopError` PAYLOAD_TOO_LARGE: the server would refuse it, but only once all of it has been sent. */
export function withinLimit(bytes: Uint8Array, source: string): Uint8Array {
  if (bytes.length <= limits.payloadBytesMax) return bytes;
  throw new HopError("PAYLOAD_TOO_LARGE", `Cannot send ${source}: it has ${bytes.length} bytes, want at most ${limits.payloadBytesMax}`);
}

/** Where and why `text` is no JSON; undefined when it is. */
export function jsonProblem(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch {
    if (text.trim() === "") return "it is empty";
    const { at, wanted } = new JsonScan(text).firstFault();
    const before = text.slice(0, at);
    const line = before.split("\n").length;
    const column = at - before.lastIndexOf("\n");
    const got = at >= text.length ? "the text ends" : `got ${JSON.stringify(String.fromCodePoint(text.codePointAt(at) as number))}`;
    return `line ${line}, column ${column}: ${got}, want ${wanted}`;
  }
}

interface Fault {
  readonly at: number;
  readonly wanted: string;
}

/** Finds the first character at which a text stops being JSON: the engine does not say where. */
class JsonScan {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  firstFault(): Fault {
    const fault = this.#value(0);
    if (fault !== undefined) return fault;
    this.#blank();
    return this.#fault("the end");
  }

  #fault(wanted: string): Fault {
    return { at: this.#at, wanted };
  }

  #blank(): void {
    while (/[ \t\n\r]/.test(this.#text[this.#at] ?? "")) this.#at++;
  }

  #value(depth: number): Fault | undefined {
    this.#blank();
    const char = this.#text[this.#at];
    if (depth > 1000) return this.#fault("less nesting");
    if (char === '"') return this.#string();
    if (char === "{") return this.#sequence("}", depth, true);
    if (char === "[") return this.#sequence("]", depth, false);
    return this.#token();
  }

  #token(): Fault | undefined {
    const match = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)/y;
    match.lastIndex = this.#at;
    const found = match.exec(this.#text);
    if (found === null) return this.#fault("a value");
    this.#at += found[0].length;
    return undefined;
  }

  #string(): Fault | undefined {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON strings hold no raw control characters
    const match = /(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*/y;
    match.lastIndex = this.#at + 1;
    this.#at += 1 + (match.exec(this.#text)?.[0].length ?? 0);
    if (this.#text[this.#at] !== '"') return this.#fault(this.#text[this.#at] === "\\" ? "a valid escape" : "the end of the string");
    this.#at++;
    return undefined;
  }

  #sequence(close: string, depth: number, isObject: boolean): Fault | undefined {
    this.#at++;
    this.#blank();
    if (this.#text[this.#at] === close) return this.#skip();
    for (;;) {
      const fault = (isObject ? this.#name() : undefined) ?? this.#value(depth + 1);
      if (fault !== undefined) return fault;
      this.#blank();
      if (this.#text[this.#at] === close) return this.#skip();
      if (this.#text[this.#at] !== ",") return this.#fault(`"," or "${close}"`);
      this.#at++;
    }
  }

  #name(): Fault | undefined {
    this.#blank();
    if (this.#text[this.#at] !== '"') return this.#fault("a name in double quotes");
    const fault = this.#string();
    if (fault !== undefined) return fault;
    this.#blank();
    return this.#text[this.#at] === ":" ? this.#skip() : this.#fault('":"');
  }

  #skip(): undefined {
    this.#at++;
    return undefined;
  }
}
