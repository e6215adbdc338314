/** Activities out of a module of the user's: each exported function, under its exported name. */
import { isAbsolute } from "node:path";
import type { Activities, Activity } from "#sdk/activity";
import { installExitGuard } from "./exit-guard.ts";

/** `path` is absolute. Rejects with a message that names the file. */
export async function loadActivities(path: string): Promise<Activities> {
  if (!isAbsolute(path)) throw new Error(`Cannot load activities from ${path}: want an absolute path`);
  installExitGuard();
  let exported: Record<string, unknown>;
  try {
    exported = (await import(path)) as Record<string, unknown>;
  } catch (error) {
    throw new Error(`Cannot load activities from ${path}: ${problemOf(error)}`, { cause: error });
  }
  return activitiesOf(exported);
}

/** What the code's author needs: for code that can't be read, each mistake on a line with its place. */
function problemOf(error: unknown): string {
  const places = (error instanceof AggregateError ? error.errors : [error]).map(placed);
  if (places.every((place) => place !== undefined)) return `it can't be read\n${places.map((place) => `  ${place}`).join("\n")}`;
  return error instanceof Error ? error.message : String(error);
}

function placed(error: unknown): string | undefined {
  const { position, message } = (error ?? {}) as Partial<BuildMessage>;
  if (position === undefined || position === null) return undefined;
  return `${position.file}:${position.line}:${position.column}: ${message}`;
}

/** Leaves out what is no function: constants, and classes such as own errors. */
export function activitiesOf(exported: Readonly<Record<string, unknown>>): Activities {
  const found: Record<string, Activity> = {};
  for (const [name, value] of Object.entries(exported)) {
    if (name !== "default" && typeof value === "function" && !isClass(value)) found[name] = value as Activity;
  }
  return found;
}

function isClass(value: unknown): boolean {
  return /^class\b/.test(Function.prototype.toString.call(value));
}
