/** A run's history outside of the environment: to be kept, compared, and replayed. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { toHex } from "#core/base";
import { decodeBody, type RunEvent } from "#core/run";
import { decodeChunkYielded, decodeEvent, decodeRunStarted, EventKind, fromBytes, type Payload } from "#proto";

const format = "hopskip-history/1";

/** The file that `hop workflow export` writes, as JSON has it. */
export interface HistoryFile {
  readonly format: typeof format;
  /** `namespace:instance` */
  readonly run: string;
  /** Canonical bytes of all events, oldest first, in base64. */
  readonly events: readonly string[];
  /** Payloads that are kept beside the history, in base64, by hex SHA-256. */
  readonly blobs?: Readonly<Record<string, string>>;
}

export class History {
  readonly run: string;
  /** Canonical bytes of the events, oldest first. */
  readonly events: readonly Uint8Array[];
  /** Hex SHA-256 of the last event, which names all before it: two histories are equal if and only if theirs are. */
  readonly hash: string;
  readonly blobs: ReadonlyMap<string, Uint8Array>;

  constructor(
    run: string,
    events: readonly Uint8Array[],
    { hash, blobs = new Map() }: { hash: string; blobs?: ReadonlyMap<string, Uint8Array> },
  ) {
    this.run = run;
    this.events = events;
    this.hash = hash;
    this.blobs = blobs;
  }

  /** One line for each event: what it is, and which operation, or call of a method, it is about. */
  lines(): string[] {
    return this.events.map(eventLine);
  }

  /** Chunks that the newest generation yielded and that were not refused, in order. */
  *chunks(): Generator<Payload | undefined> {
    for (const bytes of this.newest().events) {
      const { kind, payload } = fromBytes(decodeEvent, bytes);
      if (kind !== EventKind.chunkYielded) continue;
      const { chunk, refused } = fromBytes(decodeChunkYielded, payload);
      if (!refused) yield chunk;
    }
  }

  toJSON(): HistoryFile {
    const blobs = Object.fromEntries([...this.blobs].map(([hash, bytes]) => [hash, base64(bytes)]));
    return { format, run: this.run, events: this.events.map(base64), ...(this.blobs.size > 0 ? { blobs } : {}) };
  }

  /** The newest generation: its events, and the type of workflow that it runs. */
  newest(): { readonly events: readonly Uint8Array[]; readonly type: string } {
    for (let at = this.events.length - 1; at >= 0; at--) {
      const { kind, payload } = fromBytes(decodeEvent, this.events[at] as Uint8Array);
      if (kind === EventKind.runStarted) return { events: this.events.slice(at), type: fromBytes(decodeRunStarted, payload).type };
    }
    throw new TypeError(`Cannot replay the history of ${this.run}: none of its ${this.events.length} events begins a run`);
  }
}

/** A history, the JSON of one, or the path or URL of a file with it. Throws `TypeError` for anything else. */
export function readHistoryOf(source: History | HistoryFile | string | URL, hashOf: (bytes: Uint8Array) => Uint8Array): History {
  if (source instanceof History) return source;
  const file = typeof source === "string" || source instanceof URL ? readFile(source) : source;
  if (file?.format !== format || !Array.isArray(file.events)) {
    throw new TypeError(
      `Cannot read a history: its format is ${JSON.stringify(file?.format)}, want "${format}", as \`hop workflow export\` writes it`,
    );
  }
  const events = file.events.map(bytesOf);
  const last = events.at(-1);
  if (last === undefined) throw new TypeError(`Cannot replay the history of ${file.run}: it has no events`);
  const blobs = new Map(Object.entries(file.blobs ?? {}).map(([hash, text]) => [hash, bytesOf(text)]));
  return new History(file.run, events, { hash: toHex(hashOf(last)), blobs });
}

function readFile(path: string | URL): HistoryFile {
  const place = path instanceof URL || path.startsWith("file:") ? fileURLToPath(path) : path;
  try {
    return JSON.parse(readFileSync(place, "utf8")) as HistoryFile;
  } catch (error) {
    throw new TypeError(`Cannot read the history in ${place}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

const kindNames = new Map(Object.entries(EventKind).map(([name, number]) => [number as number, name]));

/** `3 activityScheduled #1` */
export function eventLine(bytes: Uint8Array): string {
  const { seq, kind, payload } = fromBytes(decodeEvent, bytes);
  const number = numberOf(decodeBody(kind, payload));
  return `${seq} ${kindNames.get(kind) ?? `kind ${kind}`}${number === undefined ? "" : ` #${number}`}`;
}

function numberOf(event: RunEvent | undefined): number | undefined {
  if (event === undefined) return undefined;
  if ("op" in event.body) return event.body.op;
  return "call" in event.body ? event.body.call : undefined;
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "base64"));
