/** What the code of a run makes searchable: typed values by name, which lists of runs are filtered by. */
import { limits } from "#core/base";
import type { SearchableSet } from "#proto";
import type { Run } from "./state.ts";

/** Why a worker may not set it, or undefined. */
export function searchableProblem(name: string, value: string): string | undefined {
  if (!/^[A-Za-z_][\w.-]{0,62}$/.test(name)) return `${JSON.stringify(name.slice(0, 80))} is not a name to be searchable by`;
  if (value.length > limits.searchableCharsMax)
    return `Searchable ${name} has ${value.length} characters, at most ${limits.searchableCharsMax} are allowed`;
  return isScalar(value) ? undefined : `Searchable ${name} is no JSON text, number, true, false, time or null`;
}

function isScalar(text: string): boolean {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return false;
  }
  if (typeof value !== "object" || value === null) return true;
  return Object.keys(value).join() === "time" && Number.isSafeInteger((value as { readonly time: unknown }).time);
}

/** Whether the run would have more than it may. */
export const isSearchableFull = (run: Run, name: string): boolean =>
  run.searchable.size >= limits.searchableMax && !run.searchable.has(name);

export function applySearchable(run: Run, { op, name, value }: SearchableSet): void {
  run.nextOp = op + 1;
  if (value === "null") run.searchable.delete(name);
  else run.searchable.set(name, value);
}

/** All of it as one JSON object, its names in order: as the index of runs has it. */
export function searchableJson(run: Run): string {
  const names = [...run.searchable.keys()].sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${run.searchable.get(name)}`).join()}}`;
}
