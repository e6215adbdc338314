/**
 * The terminal: where text goes, whether it may carry colour, and how values are kept from
 * steering it.
 *
 * Colour: off with --no-color or a non-empty NO_COLOR, on with a non-empty FORCE_COLOR, else on
 * where the stream is a terminal other than a dumb one.
 */
import { writeSync } from "node:fs";

/** One of the process's output streams, or a buffer in a test. */
export interface Sink {
  write(text: string): void;
  readonly isTty: boolean;
  /** Columns of the terminal; undefined where it is none. */
  readonly columns: number | undefined;
}

/** The reader of our output went away (`hop … | head`). */
export class BrokenPipeError extends Error {
  override name = "BrokenPipeError";
}

/** Writes all of `text` before it returns, so that an exit right after loses nothing. */
function writeAll(fd: number, text: string): void {
  const bytes = Buffer.from(text);
  let at = 0;
  while (at < bytes.length) {
    try {
      at += writeSync(fd, bytes, at);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === "EPIPE") throw new BrokenPipeError("The reader of the output went away");
      // A full pipe that another process made non-blocking.
      if (code !== "EAGAIN") throw error;
      Bun.sleepSync(1);
    }
  }
}

/** Standard output (1) or standard error (2) of this process. */
export function processSink(fd: 1 | 2): Sink {
  const stream = fd === 1 ? process.stdout : process.stderr;
  return {
    write: (text) => writeAll(fd, text),
    isTty: stream.isTTY === true,
    get columns() {
      return stream.isTTY === true ? stream.columns : undefined;
    },
  };
}

export type Style = "bold" | "dim" | "red" | "green" | "yellow" | "cyan";
export type Paint = (style: Style, text: string) => string;

const codes: Record<Style, readonly [number, number]> = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
};

const coloured: Paint = (style, text) => `\u001b[${codes[style][0]}m${text}\u001b[${codes[style][1]}m`;
const plain: Paint = (_style, text) => text;

export interface ColorChoice {
  /** False for --no-color. */
  readonly color: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** How text on `sink` is painted. */
export function paintFor(sink: Sink, { color, env }: ColorChoice): Paint {
  const isSet = (name: string) => env[name] !== undefined && env[name] !== "";
  if (!color || isSet("NO_COLOR")) return plain;
  if (isSet("FORCE_COLOR")) return env.FORCE_COLOR === "0" ? plain : coloured;
  return sink.isTty && env.TERM !== "dumb" ? coloured : plain;
}

// Controls, line and paragraph separators, and what reorders text around it.
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const steering = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]|[\ud800-\udfff]/gu;
const named: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** `text` with all that could move the cursor, change colours or reorder a line made visible. */
export function visible(text: string): string {
  return text.replace(steering, (char) => named[char] ?? `\\u${(char.codePointAt(0) as number).toString(16).padStart(4, "0")}`);
}

/** The same for a text of several lines: those behind the first stand under it, indented. */
export function visibleLines(text: string): string {
  return text.split(/\r?\n/).map(visible).join("\n  ");
}

/** JSON in which no character steers a terminal; it parses to the same value. */
export function safeJson(value: unknown, indent?: number): string {
  return safeText(JSON.stringify(value, null, indent));
}

// Line feeds and tabs may stand between the values of a JSON text.
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const steeringInJson = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** The same for a text that is JSON already. */
export function safeText(json: string): string {
  return json.replace(steeringInJson, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Columns that `text` takes; escape codes take none, wide characters two. */
export const widthOf = (text: string): number => Bun.stringWidth(text);

/** The longest beginning of `text` that takes at most `columns`, marked where it was cut. */
export function cut(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let out = "";
  let used = 1;
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    used += widthOf(segment);
    if (used > columns) break;
    out += segment;
  }
  return `${out}…`;
}
