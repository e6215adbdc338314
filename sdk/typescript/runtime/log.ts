/** A workflow's log lines. They are written once: not again when the run is rebuilt. */
import { engine } from "./engine.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

type Write = (...parts: readonly unknown[]) => void;

/** Writes a line to the worker's log. Parts that are not strings are shown as JSON. `console` does the same in a workflow. */
export const log: { readonly [L in LogLevel]: Write } = Object.freeze({
  debug: writer("debug"),
  info: writer("info"),
  warn: writer("warn"),
  error: writer("error"),
});

function writer(level: LogLevel): Write {
  return (...parts) => engine(`log.${level}()`).log(level, parts);
}
