/**
 * What every part of a shard works on: states in memory, the open record, effects of this step.
 *
 * Invariants: at most one record is open, and it is sealed before a step returns; events in it are
 * applied as they are appended, so deciding always sees the head. Runs in memory have keys in the
 * shard's range. Only a leader appends.
 */
import {
  asIndex,
  asSeq,
  asShardId,
  assert,
  asTerm,
  type Barrier,
  type Effect,
  type Hasher,
  HlcClock,
  type Index,
  InvariantError,
  inRange,
  type Key,
  keyOfDigest,
  keyText,
  type LogWriter,
  limits,
  logicalMax,
  noBytes,
  now,
  type Partition,
  type Rejection,
  type RequestId,
  rangeText,
  runOf,
  type SavedState,
  type SessionId,
  type ShardId,
  type StateReader,
  type Term,
  TimerHeap,
  type ZoneReader,
} from "#core/base";
import { ReadyQueue, WorkerPool } from "#core/dispatch";
import { appendEvent, PartitionChain } from "#core/merkle";
import { applyEvent, emptyRun, encodeBody, hasGuest, isForGuest, loadRun, type RunEvent, type StartRequest, stateFormat } from "#core/run";
import {
  decodeRunState,
  encodeLeaseGranted,
  encodePayload,
  encodeRunDelivered,
  encodeShardChange,
  fromBytes,
  type IdentityInit,
  type ShardChange,
  toBytes,
  Writer,
} from "#proto";
import { bornHeader, decodeHeader, type Header, joinedAt, type SavedShard, type ShardBirth } from "./header.ts";
import type { Input } from "./input.ts";
import { LiveRun, type WaitingQuery } from "./live-run.ts";
import type { ShardTimer } from "./shard-timer.ts";

export interface ShardOptions {
  readonly shard: ShardId;
  readonly birth: ShardBirth;
  /** Where the shard was checkpointed: takes the place of its birth. */
  readonly saved?: SavedShard;
  readonly log: LogWriter;
  readonly hasher: Hasher;
  readonly states: StateReader;
  /** Left out: schedules are in UTC only. */
  readonly zones?: ZoneReader;
  /** How long a task whose worker's stream ended waits for that worker to come back. */
  readonly orphanGraceMs?: number;
  /** How long an idle run stays in memory. */
  readonly idleMs?: number;
  /** How long results of idempotency keys are kept from now on; left out: `limits.keyRetentionMs`. */
  readonly keyRetentionMs?: number;
  /** Runs that stay in memory however idle they are; left out: none. */
  readonly residentKept?: number;
}

/** Version of the event payloads' schema, in every event. */
export const schemaId = 1;

/** An encoded header and the log index through which it is the fold of the log. */
export type HeaderAsOf = Pick<SavedShard, "header" | "headerIndex">;

/** A change of the shard that was applied. */
export interface AppliedChange {
  readonly index: Index;
  readonly change: ShardChange;
  /** What the child of a split begins with. */
  readonly child?: ShardBirth;
}

export class ShardContext {
  readonly options: ShardOptions;
  readonly zones: ZoneReader;
  readonly orphanGraceMs: number;
  readonly idleMs: number;
  readonly residentKept: number;
  readonly keyRetentionMs: number;
  readonly clock = new HlcClock();
  readonly runs = new Map<Partition, LiveRun>();
  /** Runs changed since their last checkpoint, oldest first, with the index of the first change. */
  readonly dirty = new Map<LiveRun, number>();
  /** Runs of the checkpoint that is being saved. */
  readonly saving = new Map<Partition, LiveRun>();
  /** Runs that are another shard's now and whose last state here is not saved, with the index of their first change. */
  readonly departing = new Map<LiveRun, number>();
  /** The header before the first split whose departing runs are not all saved: what is saved until they are. */
  headerBefore: HeaderAsOf | undefined;
  /** The header of the checkpoint that is being saved. */
  captured: HeaderAsOf | undefined;
  /** Index of the newest split. */
  splitIndex = 0;
  header: Header;
  /** Through which `header` is known without the log. */
  readonly headerIndex: number;
  /** Changes of the shard since the shell last asked. */
  changes: AppliedChange[] = [];
  /** Runs that have something to be told and no worker to tell it to. */
  readonly unassigned = new Set<LiveRun>();
  /** Runs with a task whose worker's stream ended, and some that had one. */
  readonly orphaned = new Set<LiveRun>();
  readonly pool: WorkerPool<LiveRun>;
  readonly ready = new ReadyQueue<LiveRun>();
  readonly timers = new TimerHeap<ShardTimer>();
  readonly waiting = new Map<RequestId, LiveRun>();
  readonly queries = new Map<
    number,
    { readonly live: LiveRun; readonly query: WaitingQuery; readonly session: SessionId; readonly after: Barrier }
  >();
  /** What workers said while the shard is frozen. */
  stalled: Input[] = [];
  /** Timers due before this are in the heap. */
  horizonMs = 0;
  armedMs = Number.POSITIVE_INFINITY;
  /** What this step is about, where it was found to have no state: that is read once. */
  absent: Partition | undefined;
  /** What is due and could not be read is looked for again then. */
  rereadAtMs = Number.POSITIVE_INFINITY;
  /** Runs that were loaded for something else meanwhile, and may be due. */
  readonly unwoken = new Set<LiveRun>();

  /** Physical time of the step, never below the log's own clock. */
  nowMs = 0;
  lastIndex: Index = asIndex(0);
  /** Term of what is appended; 0 = follows. */
  term: Term = asTerm(0);
  effects: Effect[] = [];
  private touched: LiveRun[] = [];
  private record: Writer | undefined;
  private deliveredSeq = 0;
  private eventCount = 0;
  /** Events of the open record whose predecessor is in another shard's log, by their place in it. */
  private readonly foreign = new Map<number, number>();
  private readonly name = new Writer(512);
  private readonly digest = new Uint8Array(32);
  /** The partition whose key was made last: it is asked for again and again within a step. */
  private keyed: Partition | undefined;
  private key: Key = 0;

  constructor(options: ShardOptions) {
    this.options = options;
    this.zones = options.zones ?? { offsetMs: () => undefined };
    this.orphanGraceMs = options.orphanGraceMs ?? 1000;
    this.idleMs = options.idleMs ?? 5000;
    this.residentKept = options.residentKept ?? 0;
    this.keyRetentionMs = options.keyRetentionMs ?? limits.keyRetentionMs;
    this.pool = new WorkerPool(options.shard);
    const { birth, saved } = options;
    this.header = saved === undefined ? bornHeader(birth) : decodeHeader(saved.header);
    this.headerIndex = saved?.headerIndex ?? 0;
    this.lastIndex = asIndex(saved?.appliedIndex ?? 0);
    // What was saved of the clock is its milliseconds: what is appended next is above them.
    this.clock.witness({ timeMs: saved?.clockMs ?? birth.clockMs, logical: logicalMax });
  }

  begin(nowMs: number): void {
    this.nowMs = Math.max(nowMs, this.clock.timeMs);
    this.effects = [];
    this.touched = [];
  }

  emit(effect: Effect): void {
    this.effects.push(effect);
  }

  /** Runs that this step appended to. */
  takeTouched(): LiveRun[] {
    const touched = this.touched;
    this.touched = [];
    return touched;
  }

  /** What follows for the run is to be looked at in this step, though nothing is appended to it. */
  touch(live: LiveRun): void {
    if (this.touched.at(-1) !== live) this.touched.push(live);
  }

  /** Barrier of everything that the run's state rests on now. */
  committed(live: LiveRun): Barrier {
    return live.appliedIndex === 0 ? now : { until: "committed", index: asIndex(live.appliedIndex) };
  }

  get isLeading(): boolean {
    return this.term !== 0;
  }

  get isFrozen(): boolean {
    return this.header.frozenInto !== 0;
  }

  keyOf(partition: Partition): Key {
    if (partition === this.keyed) return this.key;
    this.keyed = partition;
    const w = this.name;
    w.at = 0;
    // The text stands behind its tag and a length of one or two bytes.
    w.text(10, partition);
    const from = w.at - 2 < 128 ? 2 : 3;
    this.options.hasher.sha256(w.bytes.subarray(from, w.at), this.digest);
    this.key = keyOfDigest(this.digest);
    return this.key;
  }

  /** The shard whose log holds the run's last event. */
  shardOfLast(live: LiveRun): ShardId {
    const { lastShard } = live.chain;
    return lastShard === 0 ? this.options.shard : asShardId(lastShard);
  }

  /** The refusal of what is for a partition that this shard does not decide for, now or at all. */
  elsewhere(partition: Partition): Rejection {
    const { shard } = this.options;
    const { first, last, frozenInto } = this.header;
    const message = inRange(this.header, this.keyOf(partition))
      ? `Shard ${shard} does not decide for ${partition} now: it is about to become part of shard ${frozenInto}`
      : `Shard ${shard} does not hold ${partition}: its key is ${keyText(this.keyOf(partition))}, the shard has ${rangeText({ first, last })}`;
    return { reject: "STALE_EPOCH", message, retryAfterMs: 10 };
  }

  /** Whether the partition is this shard's. */
  owns(partition: Partition): boolean {
    return this.runs.has(partition) || inRange(this.header, this.keyOf(partition));
  }

  /** The run in memory, loaded from its checkpoint if need be; undefined when it has no events or is another shard's. */
  find(partition: Partition): LiveRun | undefined {
    const live = this.runs.get(partition);
    if (live !== undefined) return live.chain.size === 0 ? undefined : live;
    const key = this.keyOf(partition);
    const loaded = inRange(this.header, key) ? this.load(partition, key) : undefined;
    // It may only remember what was refused to others.
    return loaded === undefined || loaded.chain.size === 0 ? undefined : loaded;
  }

  private load(partition: Partition, key: Key): LiveRun | undefined {
    if (partition === this.absent) return undefined;
    const saved = this.options.states.load(partition);
    if (saved === undefined) return undefined;
    const loaded = this.decodeState(partition, key, saved);
    this.runs.set(partition, loaded);
    if (this.rereadAtMs !== Number.POSITIVE_INFINITY) this.unwoken.add(loaded);
    loaded.touchedMs = this.nowMs;
    return loaded;
  }

  /** As `find`, for a partition of this shard; one without events is made. */
  findOrCreate(partition: Partition): LiveRun {
    const live = this.runs.get(partition);
    if (live !== undefined) return live;
    const key = this.keyOf(partition);
    if (!inRange(this.header, key)) throw new InvariantError(this.elsewhere(partition).message);
    const found = this.load(partition, key);
    if (found !== undefined) return found;
    const made = new LiveRun(partition, key, emptyRun(runOf(partition)), new PartitionChain(partition), 0);
    this.runs.set(partition, made);
    return made;
  }

  /** Appends an event to the run's chain and the open record, and applies it. Returns its sequence. */
  append(live: LiveRun, event: RunEvent, identity: IdentityInit, inputHash: Uint8Array = noBytes): number {
    const w = this.openRecord();
    this.clock.tick(this.nowMs);
    const { timeMs, logical } = this.clock;
    // What counts from now on counts from the event, as whoever reads it back has it.
    this.nowMs = Math.max(this.nowMs, timeMs);
    const seq = live.chain.size;
    if (live.chain.lastShard !== 0) this.foreign.set(this.eventCount, live.chain.lastShard);
    this.eventCount++;
    const bytes = appendEvent({ writer: w, index: this.lastIndex, hasher: this.options.hasher }, live.chain, {
      timeMs,
      logical,
      kind: event.kind,
      schemaId,
      identity,
      encode: encodeBody,
      payload: event,
    });
    applyEvent(live.run, event, { seq, timeMs }, inputHash);
    if (isForGuest(event.kind) && hasGuest(live.run)) live.fresh.push(bytes);
    this.changed(live);
    return asSeq(seq);
  }

  /** Identity of what Core decides by itself, because of event `causeSeq`. */
  core(causeSeq: number): IdentityInit {
    return { issuer: "core", causeSeq };
  }

  /** Records a delivery above the first: durable, but not part of the run's history. */
  appendLease(live: LiveRun, op: number, attempt: number, delivery: number): void {
    const w = this.openRecord();
    const mark = w.begin(26);
    encodeLeaseGranted(w, { partition: live.partition, op, attempt, delivery });
    w.close(mark);
    this.changed(live);
  }

  /** Records that the guest has seen all below `seq` and asked for nothing. */
  appendDelivered(live: LiveRun, seq: number): void {
    const w = this.openRecord();
    const mark = w.begin(42);
    encodeRunDelivered(w, { partition: live.partition, seq });
    w.close(mark);
    live.run.deliveredSeq = seq;
    this.changed(live);
  }

  /** Puts into the record, as its field `field`, what is durable but not part of the run's history. */
  appendFact<T>(live: LiveRun, field: number, encode: (w: Writer, fact: T) => void, fact: T): void {
    const w = this.openRecord();
    const mark = w.begin(field * 8 + 2);
    encode(w, fact);
    w.close(mark);
    this.changed(live);
  }

  /** Records a change of the shard, alone in its record. */
  appendChange(change: ShardChange): void {
    assert(this.record === undefined, "no record is open when the shard changes");
    const w = this.openRecord();
    const mark = w.begin(58);
    encodeShardChange(w, change as Exclude<ShardChange, { kind: "unknown" }>);
    w.close(mark);
    this.seal();
  }

  /** What the record's events rest on: the guest had seen all below `seq`. */
  markDelivered(live: LiveRun, seq: number): void {
    if (this.record === undefined) return;
    live.run.deliveredSeq = seq;
    this.deliveredSeq = seq;
  }

  seal(): void {
    if (this.record === undefined) return;
    if (this.deliveredSeq > 0) {
      this.record.varint(32);
      this.record.varint(this.deliveredSeq);
      this.deliveredSeq = 0;
    }
    if (this.foreign.size > 0) {
      for (let i = 0; i < this.eventCount; i++) {
        this.record.varint(48);
        this.record.varint(this.foreign.get(i) ?? 0);
      }
      this.foreign.clear();
    }
    this.eventCount = 0;
    this.record = undefined;
    this.options.log.end();
  }

  /** Hash of what a start with an idempotency key must repeat; empty where it has none. */
  inputHash({ idempotencyKey, type, input }: Pick<StartRequest, "idempotencyKey" | "type" | "input">): Uint8Array {
    if (idempotencyKey === "") return noBytes;
    const out = new Uint8Array(32);
    const w = new Writer(256);
    w.text(10, type);
    if (input !== undefined) w.field(18, toBytes(encodePayload, input));
    this.options.hasher.sha256(w.bytes.subarray(0, w.at), out);
    return out;
  }

  private openRecord(): Writer {
    if (this.record !== undefined) return this.record;
    assert(this.isLeading, "a shard appends only while it leads");
    this.lastIndex = asIndex(this.lastIndex + 1);
    this.record = this.options.log.begin(this.options.shard, this.lastIndex, this.term);
    return this.record;
  }

  /** The saved state must be of the current format: others are rebuilt from the log before use. */
  decodeState(partition: Partition, key: Key, saved: SavedState): LiveRun {
    const state = fromBytes(decodeRunState, saved.state);
    if (state.format !== stateFormat) throw new RangeError(`Cannot load ${partition}: state format ${state.format}, want ${stateFormat}`);
    const own = this.options.shard;
    // 0 stands for the shard that saved it; one that only took messages has no event yet.
    const lastShard = state.lastShard === 0 && state.size > 0 ? saved.shard : state.lastShard;
    const chain = new PartitionChain(partition, { ...state, lastShard: lastShard === own ? 0 : lastShard });
    const appliedIndex = saved.shard === own ? state.appliedIndex : joinedAt(this.header, key);
    return new LiveRun(partition, key, loadRun(runOf(partition), state), chain, appliedIndex);
  }

  private changed(live: LiveRun): void {
    live.appliedIndex = this.lastIndex;
    live.touchedMs = this.nowMs;
    if (!this.dirty.has(live)) this.dirty.set(live, this.lastIndex);
    this.touch(live);
  }
}
