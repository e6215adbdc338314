/** Log lines of long-running commands, on standard error: short ones for people, JSON for machines. */
import { type Paint, type Sink, type Style, visible } from "./terminal.ts";

export type LogForm = "text" | "json";
export type Level = "debug" | "info" | "warn" | "error";
export type Fields = Readonly<Record<string, unknown>>;
export type Log = (level: Level, message: string, fields?: Fields) => void;

export interface LogOptions {
  readonly sink: Sink;
  readonly paint: Paint;
  readonly form: LogForm;
  /** Least important level that is written. */
  readonly level: Level;
}

const order: Record<Level, number> = { debug: 0, info: 1, warn: 2, error: 3 };
const styles: Partial<Record<Level, Style>> = { debug: "dim", warn: "yellow", error: "red" };

export function logTo({ sink, paint, form, level: least }: LogOptions): Log {
  return (level, message, fields = {}) => {
    if (order[level] < order[least]) return;
    const time = new Date().toISOString();
    if (form === "json") sink.write(`${JSON.stringify({ time, level, message, ...jsonFields(fields) })}\n`);
    else sink.write(`${painted(paint, styles[level], textLine(time, level, message, fields))}\n`);
  };
}

const painted = (paint: Paint, style: Style | undefined, text: string) => (style === undefined ? text : paint(style, text));

function textLine(time: string, level: Level, message: string, fields: Fields): string {
  const shown = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(
      ([name, value]) =>
        ` ${name}=${quoted(value instanceof Error ? causes(value) : typeof value === "string" ? value : (JSON.stringify(value) ?? String(value)))}`,
    );
  return `${time.slice(11, 23)} ${level.padEnd(5)} ${visible(message)}${shown.join("")}`;
}

const quoted = (text: string) => (/^[\w.:/@+-]+$/.test(text) ? text : JSON.stringify(visible(text)));

const jsonFields = (fields: Fields) =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? causes(value) : value]));

/** An error with its causes. */
function causes(error: Error): string {
  const { cause } = error;
  return cause instanceof Error ? `${error.name}: ${error.message}; caused by ${causes(cause)}` : `${error.name}: ${error.message}`;
}
