/**
 * Messages between runs whose shards are restored to different moments, put right while all of their
 * states are at hand: what one of two lacks is found by comparing them, and recorded in the new logs.
 *
 * How two of them are made whole is Core's ([reunion.ts](../../core/shard/reunion.ts)); what can't be is told.
 */
import {
  asIndex,
  asSeq,
  asTerm,
  type Hasher,
  HopError,
  inRange,
  namespaceOf,
  type Partition,
  runOf,
  type Seq,
  type ShardId,
} from "#core/base";
import type { RestoredShard, UploadedPlacement } from "#core/placement";
import { acquaintances, type Difference, differenceOf, emptyRun, hasAcquaintances, loadRun, type Side, withBundle } from "#core/run";
import { type Reunited, ShardMachine, signalsTo } from "#core/shard";
import { decodeRunState, fromBytes, type Message, type RunState } from "#proto";
import { type CheckpointMeta, ManifestLog, type ObjectStore, ObjectTier, TieredSegmentStore } from "#store";
import { keyOf } from "../cluster/shard-map.ts";
import type { Storage } from "../storage.ts";

export interface ReunionParts {
  readonly storage: Pick<Storage, "log" | "checkpoint">;
  readonly objects: ObjectStore;
  /** Begins the keys of the cluster's objects. */
  readonly cluster: string;
  readonly hasher: Hasher;
  /** All shards of the new cluster, with their logs begun. */
  readonly shards: readonly RestoredShard[];
  /** Code for a start that names none, as for a client's. */
  readonly bundleFor: UploadedPlacement["bundleFor"];
  readonly nowMs: number;
  readonly signal: AbortSignal;
  /** Told a line. */
  readonly say: (text: string) => void;
}

/** Messages from one partition to another that the two don't have the same of. */
interface Pair extends Difference {
  readonly from: Partition;
  readonly to: Partition;
  /** Of the sender's history, where a part of it is to be read. */
  readonly end: HistoryEnd | undefined;
}

interface HistoryEnd {
  readonly shard: ShardId;
  readonly endSeq: Seq;
  readonly lastIndex: number;
}

interface Saved extends Side {
  readonly end: HistoryEnd | undefined;
}

const batchBytes = 1 << 20;
/** Runs that are named for what they lack; the rest are counted. */
const namedMax = 20;

/** Rejects with `HopError` where histories can't be read now. */
export async function reuniteMessages(parts: ReunionParts): Promise<void> {
  const { pairs, unsure } = compareAll(parts);
  if (unsure > 0)
    parts.say(
      `Messages between runs: of ${unsure} pairs of runs one has forgotten the other one, as those do that have many to do with: whether something is missing between them is not known`,
    );
  if (pairs.length > 0) await new Reunion(parts).run(pairs);
}

/** All pairs of the restored runs of which one lacks what the other one has. */
function compareAll({ storage: { checkpoint }, shards, signal }: ReunionParts): { pairs: Pair[]; unsure: number } {
  const found = new Map<string, Pair>();
  const doubted = new Set<string>();
  const compare = (sender: Saved, receiver: Saved) => {
    const [from, to] = [sender.partition, receiver.partition];
    const difference = differenceOf(sender, receiver);
    const { unsent, missing, unanswered, lostCalls, claims, isUnsure } = difference;
    if (isUnsure) doubted.add(`${from} ${to}`);
    const differs = unsent + missing + unanswered.length + lostCalls.length + claims > 0;
    if (differs) found.set(`${from} ${to}`, { ...difference, from, to, end: sender.end });
  };
  const other = (partition: Partition): Saved => {
    const saved = checkpoint.load(partition);
    return saved === undefined
      ? { partition, run: emptyRun(runOf(partition)), end: undefined }
      : savedOf(partition, fromBytes(decodeRunState, saved.state), saved.shard);
  };
  for (const { shard, range } of shards) {
    const states = checkpoint.exportRange(shard, range);
    try {
      for (const batch of states.batches(batchBytes)) {
        signal.throwIfAborted();
        for (const { partition, state, shard: savedBy } of batch) {
          const decoded = fromBytes(decodeRunState, state);
          if (!hasAcquaintances(decoded)) continue;
          const own = savedOf(partition, decoded, savedBy);
          const { receivers, senders } = acquaintances(own.run);
          for (const to of receivers) compare(own, other(to));
          for (const from of senders) compare(other(from), own);
        }
      }
    } finally {
      states.close();
    }
  }
  return { pairs: [...found.values()], unsure: doubted.size };
}

function savedOf(partition: Partition, state: RunState, savedBy: ShardId): Saved {
  const shard = state.lastShard === 0 ? savedBy : (state.lastShard as ShardId);
  const end = state.size === 0 ? undefined : { shard, endSeq: asSeq(state.size), lastIndex: state.lastIndex };
  return { partition, run: loadRun(runOf(partition), state), end };
}

class Reunion {
  private readonly parts: ReunionParts;
  private readonly segments: TieredSegmentStore;
  /** Shards that something is recorded in. */
  private readonly amended = new Map<ShardId, { readonly machine: ShardMachine; readonly term: number }>();

  constructor(parts: ReunionParts) {
    const { objects, cluster, hasher, storage } = parts;
    this.parts = parts;
    this.segments = new TieredSegmentStore(storage.log, new ObjectTier(objects, new ManifestLog(objects, cluster, hasher)));
  }

  async run(pairs: readonly Pair[]): Promise<void> {
    const { storage, signal, say } = this.parts;
    for (const { from, to } of pairs) this.at(from).renumberTo(to, { from, receiver: this.at(to) });
    const total = { given: 0, lost: 0, asked: 0, refused: 0 };
    let named = 0;
    for (const pair of pairs) {
      signal.throwIfAborted();
      const { from, to, missing } = pair;
      const { signals, fault } = missing > 0 ? await this.signalsOf(pair) : { signals: [], fault: undefined };
      const made = this.at(from).reuniteWith(to, { from, receiver: this.at(to) }, signals);
      const lost = fault === undefined ? made.lost : missing;
      add(total, { ...made, lost });
      if (lost > 0 && named++ < namedMax) say(lostText(pair, lost, fault));
    }
    if (named > namedMax) say(`Messages between runs: ${named - namedMax} more runs lack messages`);
    for (const [shard, { machine, term }] of this.amended)
      storage.log.setHardState(shard, { term: asTerm(term), vote: 0, commit: asIndex(machine.lastIndex) });
    for (const text of textsOf(pairs, total)) say(text);
  }

  /** The shard of the partition, which records from then on. */
  private at(partition: Partition): ShardMachine {
    const key = keyOf(partition);
    const home = this.parts.shards.find(({ range }) => inRange(range, key));
    if (home === undefined) throw new HopError("INTERNAL", `No restored shard has the key of ${partition}`);
    const known = this.amended.get(home.shard);
    if (known !== undefined) return known.machine;
    const meta = this.parts.storage.checkpoint.meta(home.shard);
    if (meta === undefined) throw new HopError("INTERNAL", `Shard ${home.shard} was begun, and has no place`);
    const term = (meta.term ?? 0) + 1;
    const machine = this.open(home, meta);
    machine.amend({ term: asTerm(term), nowMs: this.parts.nowMs });
    this.amended.set(home.shard, { machine, term });
    return machine;
  }

  private open({ shard, range }: RestoredShard, { appliedIndex, header, headerIndex, clockMs }: CheckpointMeta): ShardMachine {
    const { log, checkpoint } = this.parts.storage;
    return new ShardMachine({
      shard,
      log,
      hasher: this.parts.hasher,
      states: checkpoint.reader(),
      birth: { range, ancestors: [], clockMs: 0 },
      saved: { appliedIndex, header, headerIndex: headerIndex ?? appliedIndex, clockMs },
    });
  }

  /** What the sender's history has of signals to the receiver; `fault` where it is damaged. */
  private async signalsOf({ from, to, end }: Pair): Promise<{ readonly signals: Message[]; readonly fault: string | undefined }> {
    const signals: Message[] = [];
    if (end === undefined) return { signals, fault: "its history is not there" };
    const { shard, endSeq, lastIndex } = end;
    const run = runOf(to);
    try {
      const range = { shard, partition: from, firstSeq: asSeq(0), endSeq, lastIndex: asIndex(lastIndex) };
      const read = signalsTo(to);
      const newest = (type: string) => this.parts.bundleFor(namespaceOf(run), { type, run });
      for await (const events of this.segments.history(range)) signals.push(...read(events).map((message) => withBundle(message, newest)));
      return { signals, fault: undefined };
    } catch (error) {
      if (error instanceof HopError && error.reason === "HASH_MISMATCH") return { signals: [], fault: error.message };
      throw error;
    }
  }
}

function add(total: Record<keyof Reunited, number>, more: Reunited): void {
  for (const key of Object.keys(total) as (keyof Reunited)[]) total[key] += more[key];
}

const lostText = ({ from, to }: Pair, lost: number, fault: string | undefined) =>
  fault === undefined
    ? `Run ${runOf(to)} lacks ${lost} messages of run ${runOf(from)}, and can't take them: as it was uploaded it had ended, or was not there`
    : `Run ${runOf(to)} lacks ${lost} messages of run ${runOf(from)}: ${fault}`;

function textsOf(pairs: readonly Pair[], { given, lost, asked, refused }: Reunited): string[] {
  const unsent = pairs.reduce((sum, pair) => sum + pair.unsent, 0);
  const texts = [
    [given, "messages were taken again by runs that were uploaded before they had them"],
    [lost, "are lost"],
    [asked, "waits for results were asked again"],
    [refused, "waits for results end with an error: who was waited for was not uploaded"],
    [unsent, "were taken of runs that were uploaded before they sent them: those may send them again"],
  ] as const;
  return texts.filter(([count]) => count > 0).map(([count, what]) => `Messages between runs: ${count} ${what}`);
}
