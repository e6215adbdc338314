/**
 * A log store against the simplest thing that could be one: the list of all frames, folded from
 * its beginning whenever somebody asks.
 *
 * Operations are drawn from a seed, over a few shards, with every kind of frame; after each flush
 * and crash the store has to say what the model says. A crash may keep any whole-frame prefix that
 * has everything durable.
 */
import { expect } from "bun:test";
import { asIndex, asShardId, asTerm, Prng } from "#core/base";
import type { EntryKind, HardState, LogBase, LogEntry, LogStore } from "./log-store.ts";
import { ReleasedError } from "./released-error.ts";

interface ModelEntry {
  readonly index: number;
  readonly term: number;
  readonly kind: EntryKind;
  readonly text: string;
  /** Number of the frame. */
  readonly frame: number;
}

type Frame = { readonly shard: number } & (
  | { readonly op: "entry" | "archive"; readonly entry: Omit<ModelEntry, "frame"> }
  | { readonly op: "state"; readonly state: HardState }
  | { readonly op: "base"; readonly base: LogBase }
  | { readonly op: "compact" | "release"; readonly index: number }
  | { readonly op: "remove" }
);

interface ModelShard {
  base: { index: number; term: number; frame: number };
  log: ModelEntry[];
  state: HardState;
  isRemoved: boolean;
  released: number;
  /** Of elsewhere, and of before a base; the newest wins. */
  readonly archive: Map<number, ModelEntry>;
  readonly retired: Map<number, ModelEntry>;
}

const noState: HardState = { term: asTerm(0), vote: 0, commit: asIndex(0) };
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const bytes = (of: string) => new TextEncoder().encode(of);
const indexMax = 40;
export const modelShards = [1, 2, 7];

export class LogModel {
  readonly frames: Frame[] = [];
  private readonly prng: Prng;
  private clock = 0;
  private readonly signatures: string[] = [];

  constructor(seed: number) {
    this.prng = new Prng(seed);
  }

  fold(count = this.frames.length): Map<number, ModelShard> {
    const shards = new Map<number, ModelShard>();
    for (const shard of modelShards) {
      shards.set(shard, {
        base: { index: 0, term: 0, frame: -1 },
        log: [],
        state: noState,
        isRemoved: false,
        released: 0,
        archive: new Map(),
        retired: new Map(),
      });
    }
    for (const [number, frame] of this.frames.slice(0, count).entries()) apply(shards.get(frame.shard) as ModelShard, frame, number);
    return shards;
  }

  /** What a store says and holds that has the first `count` frames. */
  signature(count: number): string {
    let signature = this.signatures[count];
    if (signature === undefined) {
      const folded = this.fold(count);
      signature = JSON.stringify([factsOf(folded), recordsOfModel(folded)]);
      this.signatures[count] = signature;
    }
    return signature;
  }

  /** A crash took what is behind: the model goes on from there. */
  forget(kept: number): void {
    this.frames.length = kept;
    this.signatures.length = Math.min(this.signatures.length, kept + 1);
  }

  /** One random operation, on the store and here. */
  step(log: LogStore): void {
    const { prng } = this;
    const shard = modelShards[prng.below(modelShards.length)] as number;
    const id = asShardId(shard);
    const now = this.fold().get(shard) as ModelShard;
    const last = now.log.at(-1)?.index ?? now.base.index;
    const pick = prng.below(100);
    if (pick < 45) {
      if (now.isRemoved || last >= indexMax) return;
      const span = last - now.base.index;
      const index = span > 0 && prng.chance(0.2) ? last + 1 - prng.below(span) : last + 1;
      this.write(log, shard, now, index);
    } else if (pick < 51) {
      const durable = log.durableIndex(id);
      if (durable <= now.base.index) return;
      const index = asIndex(now.base.index + 1 + prng.below(durable - now.base.index));
      this.add({ shard, op: "compact", index });
      log.compact(id, index);
    } else if (pick < 57) this.release(log, shard, now);
    else if (pick < 75) {
      const term = asTerm(now.state.term + prng.below(2));
      const vote = term > now.state.term || now.state.vote === 0 ? prng.below(4) : now.state.vote;
      this.add({ shard, op: "state", state: { term, vote, commit: asIndex(last) } });
      log.setHardState(id, { term, vote, commit: asIndex(last) });
    } else if (pick < 82) {
      const base = { index: asIndex(prng.below(indexMax / 2)), term: asTerm(1 + prng.below(3)) };
      this.add({ shard, op: "base", base });
      log.setBase(id, base.index, base.term);
    } else if (pick < 86) {
      this.add({ shard, op: "remove" });
      log.remove(id);
    } else if (pick < 96) this.ingest(log, shard);
    else log.setReplicated(id, prng.chance(0.5));
  }

  /** Up to the base, or anywhere where there is no log. */
  private release(log: LogStore, shard: number, now: ModelShard): void {
    const limit = now.isRemoved ? indexMax : now.base.index;
    const through = asIndex(now.released + this.prng.below(Math.max(limit - now.released, 0) + 1));
    if (through === now.released) return;
    this.add({ shard, op: "release", index: through });
    log.release(asShardId(shard), through);
  }

  private write(log: LogStore, shard: number, now: ModelShard, first: number): void {
    const { prng } = this;
    const before = now.log.filter((entry) => entry.index < first).at(-1)?.term ?? now.base.term;
    const entries: LogEntry[] = [];
    for (let i = 0; i <= prng.below(4); i++) {
      const index = asIndex(first + i);
      const term = asTerm((entries.at(-1)?.term ?? before) + (prng.chance(0.1) ? 1 : 0));
      entries.push({ index, term, kind: prng.chance(0.2) ? "config" : "data", data: this.body(`${shard}/${index}`) });
    }
    for (const entry of entries) this.add({ shard, op: "entry", entry: { ...entry, text: text(entry.data) } });
    if (prng.chance(0.5)) return log.append(asShardId(shard), entries);
    for (const { index, term, kind, data } of entries) {
      log.begin(asShardId(shard), index, term, kind).raw(data);
      log.end();
    }
  }

  private ingest(log: LogStore, shard: number): void {
    const records: LogEntry[] = [];
    let index = 1 + this.prng.below(indexMax);
    for (let i = 0; i <= this.prng.below(4); i++) {
      const kind = this.prng.chance(0.2) ? "config" : "data";
      records.push({ index: asIndex(index), term: asTerm(1), kind, data: this.body(`archive ${shard}/${index}`) });
      index += 1 + this.prng.below(2);
    }
    for (const entry of records) this.add({ shard, op: "archive", entry: { ...entry, text: text(entry.data) } });
    log.ingestArchive(asShardId(shard), records);
  }

  private body(name: string): Uint8Array {
    return bytes(`${name} #${++this.clock} ${"x".repeat(this.prng.chance(0.1) ? 300 : this.prng.below(30))}`);
  }

  private add(frame: Frame): void {
    this.frames.push(frame);
  }
}

function apply(shard: ModelShard, frame: Frame, number: number): void {
  switch (frame.op) {
    case "entry":
      shard.log = shard.log.filter((entry) => entry.index < frame.entry.index);
      shard.log.push({ ...frame.entry, frame: number });
      return;
    case "archive":
      shard.archive.set(frame.entry.index, { ...frame.entry, frame: number });
      return;
    case "state":
      shard.state = frame.state;
      return;
    case "release":
      shard.released = frame.index;
      return;
    case "compact": {
      const last = shard.log.findIndex((entry) => entry.index === frame.index);
      shard.base = { ...shard.base, index: frame.index, term: (shard.log[last] as ModelEntry).term };
      for (const entry of shard.log.splice(0, last + 1)) shard.retired.set(entry.index, entry);
      return;
    }
    default:
      for (const entry of shard.log) shard.retired.set(entry.index, entry);
      shard.log = [];
      shard.isRemoved = frame.op === "remove";
      shard.base = { ...(frame.op === "base" ? frame.base : { index: 0, term: 0 }), frame: number };
  }
}

/** What reads find at an index. */
function found(shard: ModelShard, index: number): ModelEntry | undefined {
  const own = shard.log.find((entry) => entry.index === index);
  if (own !== undefined || index <= shard.released) return own;
  return shard.archive.get(index) ?? shard.retired.get(index);
}

/** What a store says of its shards without reading. */
export function facts(log: LogStore): unknown {
  return modelShards.map((number) => {
    const shard = asShardId(number);
    const first = log.firstIndex(shard);
    const terms: unknown[] = [];
    for (let index = 0; index <= indexMax + 6; index++) terms.push(log.term(shard, asIndex(index)) ?? "-");
    return [
      number,
      first,
      log.lastIndex(shard),
      log.base(shard),
      log.hardState(shard),
      log.isRemoved(shard),
      log.released(shard),
      terms.join(),
    ];
  });
}

export function factsOf(model: Map<number, ModelShard>): unknown {
  return [...model].map(([number, { base, log, state, isRemoved, released }]) => {
    const terms: unknown[] = [];
    for (let index = 0; index <= indexMax + 6; index++) {
      terms.push(index === base.index ? base.term : (log.find((entry) => entry.index === index)?.term ?? "-"));
    }
    const last = log.at(-1)?.index ?? base.index;
    return [number, base.index + 1, last, { index: base.index, term: base.term }, state, isRemoved, released, terms.join()];
  });
}

/** The store's entries, durable or not, are the model's, in any range and however few bytes are asked for. */
export function checkEntries(log: LogStore, model: LogModel, prng: Prng): void {
  for (const [number, shard] of model.fold()) {
    if (shard.log.length === 0) continue;
    const from = prng.below(shard.log.length);
    const end = from + 1 + prng.below(shard.log.length - from);
    const wanted = shard.log.slice(from, end);
    const bytesMax = prng.chance(0.5) ? 1e6 : prng.below(200);
    const first = shard.base.index + 1 + from;
    const got = log.entries(asShardId(number), asIndex(first), asIndex(first + wanted.length), bytesMax);
    expect(got.map(show)).toEqual(wanted.slice(0, got.length).map(showModel));
    const sizes = wanted.map((entry) => entry.text.length);
    const sum = (count: number) => sizes.slice(0, count).reduce((a, b) => a + b, 0);
    expect(got.length === 1 || sum(got.length) <= bytesMax).toBe(true);
    expect(got.length === wanted.length || sum(got.length + 1) > bytesMax).toBe(true);
  }
}

/** Durable indexes, with the model's first `durable` frames on the disk. */
export function checkDurable(log: LogStore, model: LogModel, durable: number): void {
  for (const [number, { base, log: entries }] of model.fold()) {
    const overwritten = entries.find((entry) => entry.frame >= durable);
    const want = overwritten === undefined ? (entries.at(-1)?.index ?? base.index) : overwritten.index - 1;
    const got = log.durableIndex(asShardId(number));
    // Before its base is durable a log claims no more than it had.
    if (base.frame < durable) expect([number, got as number]).toEqual([number, want]);
    else expect(got).toBeLessThanOrEqual(base.index);
  }
}

/** Everything that was appended is durable: all that reads and scans find is the model's. */
export async function checkReads(log: LogStore, model: LogModel, prng: Prng): Promise<void> {
  for (const [number, shard] of model.fold()) {
    const id = asShardId(number);
    const wanted: string[] = [];
    const isLive = !shard.isRemoved && log.shards().includes(id);
    const last = shard.log.at(-1)?.index ?? shard.base.index;
    for (let index = 1; index <= indexMax + 6; index++) {
      const want = found(shard, index);
      const got = await log.read(id, asIndex(index)).then(
        ({ body, ...rest }) => show({ ...rest, data: body }),
        (error: Error) => (error instanceof ReleasedError ? "released" : error.message),
      );
      const nothing = `Cannot read record ${index} of shard ${number}: the log does not hold it durably`;
      const otherwise = index <= shard.released ? "released" : nothing;
      expect([number, index, got]).toEqual([number, index, want === undefined ? otherwise : showModel(want)]);
      if (want !== undefined && !(isLive && index > last)) wanted.push(showModel(want));
    }
    const scanned: string[] = [];
    for await (const { body, ...rest } of log.scan(id, asIndex(0))) scanned.push(show({ ...rest, data: body }));
    expect(scanned).toEqual(wanted);
    const from = prng.below(indexMax);
    const end = from + prng.below(indexMax);
    const part = [...log.replay(id, asIndex(from), asIndex(end))].map((record) => record.index as number);
    const indexes = Array.from({ length: Math.max(end - Math.max(from, 1), 0) }, (_, i) => Math.max(from, 1) + i);
    expect(part).toEqual(indexes.filter((index) => found(shard, index) !== undefined));
  }
}

const show = ({ index, term, kind, data }: Omit<LogEntry, "data"> & { readonly data: Uint8Array }) =>
  `${index}/${term} ${kind} ${text(data)}`;
const showModel = ({ index, term, kind, text: body }: ModelEntry) => `${index}/${term} ${kind} ${body}`;

/** How many of the model's frames the opened store has: at least `least`. Fails where it is no prefix of them. */
export function prefixOf(log: LogStore, model: LogModel, least: number): number {
  const got = JSON.stringify([facts(log), recordsOf(log)]);
  for (let count = model.frames.length; count >= least; count--) if (model.signature(count) === got) return count;
  expect(got).toBe(model.signature(least));
  return least;
}

/** All that a store's files hold. */
function recordsOf(log: LogStore): string[] {
  return modelShards.flatMap((shard) =>
    [...log.replay(asShardId(shard), asIndex(1), asIndex(indexMax + 6))].map(({ body, ...rest }) => show({ ...rest, data: body })),
  );
}

function recordsOfModel(model: Map<number, ModelShard>): string[] {
  return [...model.values()].flatMap((shard) => {
    const entries = Array.from({ length: indexMax + 5 }, (_, i) => found(shard, i + 1));
    return entries.filter((entry) => entry !== undefined).map(showModel);
  });
}
