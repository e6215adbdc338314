/**
 * How long the history of an ended run is kept: what the value of a namespace says of it.
 *
 * The value is JSON; other members are other people's. Without a word of retention, histories are
 * kept for ever; a type's own word goes before its namespace's.
 */
import { limits } from "#core/base";

export interface RetentionPolicy {
  /** Undefined: for ever. */
  readonly retentionMs: number | undefined;
  /** By type, where it has a word of its own; undefined: for ever. */
  readonly types: ReadonlyMap<string, number | undefined>;
}

/** Shorter ones would take histories away from under whoever waits for a run's end. */
export const retentionMsMin = 1000;

const forever: RetentionPolicy = { retentionMs: undefined, types: new Map() };

/** What a namespace's value says of retention, or what is wrong with it. A value that is not a JSON object says nothing. */
export function retentionOf(value: Uint8Array, text: (bytes: Uint8Array) => string): RetentionPolicy | { readonly problem: string } {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text(value));
  } catch {
    return forever;
  }
  if (!isObject(parsed)) return forever;
  const own = msOf(parsed, "retentionMs");
  if (typeof own === "string") return { problem: own };
  const types = new Map<string, number | undefined>();
  if (parsed.types !== undefined && !isObject(parsed.types)) return { problem: `"types" is no object` };
  for (const [type, said] of Object.entries(parsed.types ?? {})) {
    if (!isObject(said)) return { problem: `"types" says of ${JSON.stringify(type)} what is no object` };
    if (!("retentionMs" in said)) continue;
    const ms = msOf(said, "retentionMs");
    if (typeof ms === "string") return { problem: `of type ${JSON.stringify(type)}, ${ms}` };
    types.set(type, ms);
  }
  return { retentionMs: own, types };
}

/** How long histories of the type are kept; undefined = for ever. */
export const retentionFor = ({ retentionMs, types }: RetentionPolicy, type: string): number | undefined =>
  types.has(type) ? types.get(type) : retentionMs;

type Fields = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Fields => typeof value === "object" && value !== null && !Array.isArray(value);

/** A text says what is wrong. */
function msOf(fields: Fields, name: string): number | undefined | string {
  const value = fields[name];
  if (value === undefined || value === null) return undefined;
  const isRight = typeof value === "number" && Number.isSafeInteger(value) && value >= retentionMsMin && value <= limits.timerMsMax;
  return isRight
    ? value
    : `"${name}" is ${JSON.stringify(value)}, want ${retentionMsMin} to ${limits.timerMsMax} milliseconds, or null for ever`;
}
