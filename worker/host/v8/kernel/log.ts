/** Log lines of a run, and the `console` that writes them. */
import type { LogLevel } from "#sdk/runtime";
import { record } from "../protocol.ts";
import type { Run } from "./run.ts";
import { currentRun } from "./run.ts";

const lineMax = 64 * 1024;

export function writeLog(run: Run, level: LogLevel, parts: readonly unknown[]): void {
  if (run.replaying) return;
  const line = parts.map(shown).join(" ").toWellFormed();
  run.emit(record.log, level, JSON.stringify(line.length > lineMax ? `${line.slice(0, lineMax)} …` : line));
}

function shown(part: unknown): string {
  if (typeof part === "string") return part;
  try {
    if (part instanceof Error) return part.stack ?? String(part);
    return (typeof part === "object" && part !== null ? JSON.stringify(part) : undefined) ?? String(part);
  } catch {
    return Object.prototype.toString.call(part);
  }
}

function write(level: LogLevel): (...parts: unknown[]) => void {
  return (...parts) => {
    const run = currentRun();
    // A dependency that prints while it is loaded is not heard: no run is there to hear it.
    if (run !== undefined) writeLog(run, level, parts);
  };
}

export function makeConsole(): object {
  const none = () => {};
  const console = {
    debug: write("debug"),
    log: write("info"),
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
    trace: write("debug"),
    dir: write("info"),
    table: write("info"),
    group: write("info"),
    groupCollapsed: write("info"),
    assert(claim: unknown, ...parts: unknown[]) {
      if (claim !== true && !claim) console.error("Assertion failed:", ...parts);
    },
  };
  return Object.assign(console, { groupEnd: none, clear: none, count: none, countReset: none, time: none, timeEnd: none, timeLog: none });
}
