/** Activities out of a module of the user's: each exported function, under its exported name. */
import { isAbsolute } from "node:path";
import type { Activities, Activity } from "#sdk/activity";

/** `path` is absolute. Rejects with a message that names the file. */
export async function loadActivities(path: string): Promise<Activities> {
  if (!isAbsolute(path)) throw new Error(`Cannot load activities from ${path}: want an absolute path`);
  let exported: Record<string, unknown>;
  try {
    exported = (await import(path)) as Record<string, unknown>;
  } catch (error) {
    throw new Error(`Cannot load activities from ${path}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
  return activitiesOf(exported);
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
