/**
 * Structured logs: one JSON object a line on stderr, or a short line for people on a terminal.
 *
 * Fields are names, numbers and reasons. Payloads of users never go into a log.
 */
export type Level = "debug" | "info" | "warn" | "error";
export type Fields = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Logger {
  debug(message: string, fields?: Fields): void;
  info(message: string, fields?: Fields): void;
  warn(message: string, fields?: Fields): void;
  error(message: string, fields?: Fields): void;
}

export interface LoggerOptions {
  readonly level?: Level;
  /** "pretty" for people; left out: pretty on a terminal, else JSON. */
  readonly form?: "json" | "pretty";
  readonly write?: (line: string) => void;
  readonly nowMs?: () => number;
  readonly isColored?: boolean;
}

const order: Record<Level, number> = { debug: 0, info: 1, warn: 2, error: 3 };
const colors: Record<Level, string> = { debug: "\u001b[2m", info: "", warn: "\u001b[33m", error: "\u001b[31m" };

export function createLogger(options: LoggerOptions = {}): Logger {
  const isTerminal = process.stderr.isTTY === true;
  const form = options.form ?? (isTerminal ? "pretty" : "json");
  const write = options.write ?? ((line: string) => void process.stderr.write(line));
  const nowMs = options.nowMs ?? Date.now;
  const least = order[options.level ?? "info"];
  const isColored = options.isColored ?? (isTerminal && !process.env.NO_COLOR);
  const log =
    (level: Level) =>
    (message: string, fields: Fields = {}): void => {
      if (order[level] < least) return;
      const time = new Date(nowMs()).toISOString();
      write(
        form === "json" ? `${JSON.stringify({ time, level, message, ...fields })}\n` : pretty({ time, level, message, fields, isColored }),
      );
    };
  return { debug: log("debug"), info: log("info"), warn: log("warn"), error: log("error") };
}

/** A logger that keeps silent. */
export const noLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };

function pretty(line: { time: string; level: Level; message: string; fields: Fields; isColored: boolean }): string {
  const fields = Object.entries(line.fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => ` ${name}=${typeof value === "string" ? quoted(value) : String(value)}`)
    .join("");
  const text = `${line.time.slice(11, 23)} ${line.level.padEnd(5)} ${quotedLine(line.message)}${fields}`;
  return line.isColored && colors[line.level] !== "" ? `${colors[line.level]}${text}\u001b[0m\n` : `${text}\n`;
}

/** Quotes what would break the line apart; nothing a client sends reaches a terminal raw. */
const quoted = (value: string) => (/^[\w.:/@+-]+$/.test(value) ? value : JSON.stringify(value));
const quotedLine = (value: string) => JSON.stringify(value).slice(1, -1);

/** An error and its causes on one line, with the stack of the innermost. */
export function errorFields(error: unknown): Fields {
  const messages: string[] = [];
  let stack: string | undefined;
  for (let at: unknown = error; at !== undefined && messages.length < 8; at = at instanceof Error ? at.cause : undefined) {
    messages.push(at instanceof Error ? `${at.name}: ${at.message}` : `a thrown ${typeof at}`);
    if (at instanceof Error) stack = at.stack;
  }
  return { error: messages.join("; caused by "), stack };
}
