/** `hop namespace set --retention`: changes what a namespace's value says of it, and leaves the rest as it is. */
import { parseDuration } from "../duration.ts";
import { reasonOf, UsageError } from "../failure.ts";
import type { Remote } from "../remote.ts";

export interface RetentionChange {
  /** Undefined: for ever. */
  readonly retentionMs: number | undefined;
  /** Empty: of the whole namespace. */
  readonly type: string;
}

/** What the options ask for; undefined where they don't. */
export function retentionChange(options: { readonly retention?: string; readonly type?: string }): RetentionChange | undefined {
  const { retention, type = "" } = options;
  if (retention === undefined && type !== "") throw new UsageError("Cannot use --type without --retention: it says whose retention to set");
  if (retention === undefined) return undefined;
  return { retentionMs: retention === "forever" ? undefined : parseDuration(retention, "--retention"), type };
}

/** The namespace's value with the change, and the version that it is a change of; 0 = there is none. */
export async function withRetention(
  cluster: Pick<Remote["cluster"], "entry">,
  name: string,
  change: RetentionChange,
): Promise<{ value: Uint8Array; version: number }> {
  const { value, version } = await present(cluster, name);
  const { types, ...own } = value;
  const ms = change.retentionMs ?? null;
  if (change.type === "") return { value: encoded({ ...value, retentionMs: ms }), version };
  const ofTypes = fields(types, `"types" of namespace ${JSON.stringify(name)}`);
  const ofType = fields(ofTypes[change.type], `what namespace ${JSON.stringify(name)} says of type ${JSON.stringify(change.type)}`);
  return { value: encoded({ ...own, types: { ...ofTypes, [change.type]: { ...ofType, retentionMs: ms } } }), version };
}

type Fields = Readonly<Record<string, unknown>>;

async function present(cluster: Pick<Remote["cluster"], "entry">, name: string): Promise<{ value: Fields; version: number }> {
  try {
    const { value, version } = await cluster.entry({ class: "namespace", name });
    return { value: fields(JSON.parse(new TextDecoder().decode(value)), `the value of namespace ${JSON.stringify(name)}`), version };
  } catch (error) {
    if (reasonOf(error) === "ENTRY_NOT_FOUND") return { value: {}, version: 0 };
    throw error;
  }
}

function fields(value: unknown, what: string): Fields {
  if (value === undefined) return {};
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
  throw new UsageError(`Cannot set a retention: ${what} is no JSON object`, { next: "set the whole value with --input" });
}

const encoded = (value: Fields) => new TextEncoder().encode(JSON.stringify(value));
