/**
 * What a command writes: data on standard output, talk on standard error, in the form that was
 * asked for. Tables are for people and may be shortened on a terminal; `json`, `jsonl` and `ids`
 * are for programs and never are.
 */
import type { ExitCode } from "./failure.ts";
import { shown } from "./failure.ts";
import { Progress } from "./progress.ts";
import { type Column, table } from "./table.ts";
import { type Paint, paintFor, processSink, type Sink, safeJson, visible } from "./terminal.ts";

export const formats = ["table", "json", "jsonl", "ids"] as const;
export type Format = (typeof formats)[number];

export interface OutputOptions {
  readonly format?: Format | undefined;
  /** False for --no-color. */
  readonly color?: boolean | undefined;
  /** Names of the command, such as "workflow query": what helps after a failure depends on it. */
  readonly command?: string;
  readonly out?: Sink;
  readonly err?: Sink;
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** One shape for the four forms of a list. */
export interface Listing<Row> {
  readonly columns: readonly Column<Row>[];
  readonly id: (row: Row) => string;
  readonly json: (row: Row) => unknown;
  /** Said, to people, in place of an empty table. */
  readonly empty: string;
}

export class Output {
  readonly format: Format;
  /** For standard output and for standard error. */
  readonly paint: Paint;
  readonly paintErr: Paint;
  readonly out: Sink;
  readonly err: Sink;
  readonly #command: string;
  #progress: Progress | undefined;

  constructor(options: OutputOptions = {}) {
    this.format = options.format ?? "table";
    this.#command = options.command ?? "";
    this.out = options.out ?? processSink(1);
    this.err = options.err ?? processSink(2);
    const choice = { color: options.color ?? true, env: options.env ?? process.env };
    this.paint = paintFor(this.out, choice);
    this.paintErr = paintFor(this.err, choice);
  }

  /** For people: the form is a table. */
  get isForPeople(): boolean {
    return this.format === "table";
  }

  /** A line of data, as it is. */
  line(text: string): void {
    this.out.write(`${text}\n`);
  }

  /** A line of talk. */
  say(text: string): void {
    if (this.#progress === undefined) this.err.write(`${text}\n`);
    else this.#progress.line(text);
  }

  warn(text: string): void {
    this.say(`${this.paintErr("yellow", "warning:")} ${text}`);
  }

  /** One value as data: indented for people and `json`, one line for `jsonl`. */
  json(value: unknown): void {
    this.line(this.format === "jsonl" ? safeJson(value) : safeJson(value, 2));
  }

  list<Row>(rows: readonly Row[], listing: Listing<Row>): void {
    switch (this.format) {
      case "ids":
        for (const row of rows) this.line(listing.id(row));
        return;
      case "jsonl":
        for (const row of rows) this.line(safeJson(listing.json(row)));
        return;
      case "json":
        this.line(safeJson(rows.map(listing.json), 2));
        return;
      default:
        if (rows.length === 0) this.say(listing.empty);
        else this.table(listing.columns, rows);
    }
  }

  table<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): void {
    this.out.write(table(columns, rows, { paint: this.paint, columns: this.out.columns }));
  }

  /** A line of a description; none where there is nothing to say. `width` is that of the names. */
  field(name: string, value: string, width = 10): void {
    if (value !== "") this.line(`${this.paint("bold", name.padEnd(width))} ${value}`);
  }

  /** The command's one progress line. */
  progress(): Progress {
    this.#progress ??= new Progress(this.err, this.paintErr);
    return this.#progress;
  }

  /** Shows an error: text for people, one line of JSON for programs. Returns the exit code. */
  fail(error: unknown): ExitCode {
    const { message, reason, next, exitCode } = shown(error, this.#command);
    if (this.format === "json" || this.format === "jsonl") {
      this.say(safeJson({ error: { reason, message, next, exitCode } }));
      return exitCode;
    }
    this.say(
      `${this.paintErr("red", "error:")} ${message.split("\n").map(visible).join("\n")}${reason === undefined ? "" : this.paintErr("dim", ` (${reason})`)}`,
    );
    if (next !== undefined) this.say(`  ${this.paintErr("dim", "next:")} ${next}`);
    return exitCode;
  }
}
