/**
 * What every part of a shard works on: states in memory, the open record, effects of this step.
 *
 * Invariant: at most one record is open, and it is sealed before a step returns; events in it are
 * applied as they are appended, so deciding always sees the head.
 */
import {
  asIndex,
  asSeq,
  type Barrier,
  type Effect,
  type Hasher,
  HlcClock,
  type Index,
  type LogWriter,
  noBytes,
  now,
  type Partition,
  type RequestId,
  runOf,
  type SessionId,
  type ShardId,
  type StateReader,
  type Term,
  TimerHeap,
} from "#core/base";
import { ReadyQueue, WorkerPool } from "#core/dispatch";
import { appendEvent, PartitionChain } from "#core/merkle";
import { applyEvent, emptyRun, encodeBody, isForGuest, loadRun, type RunEvent, stateFormat } from "#core/run";
import {
  decodeRunState,
  encodeLeaseGranted,
  encodePayload,
  encodeRunDelivered,
  fromBytes,
  type IdentityInit,
  type Payload,
  toBytes,
  Writer,
} from "#proto";
import { LiveRun, type WaitingQuery } from "./live-run.ts";
import type { ShardTimer } from "./shard-timer.ts";

export interface ShardOptions {
  readonly shard: ShardId;
  readonly term: Term;
  readonly log: LogWriter;
  readonly hasher: Hasher;
  readonly states: StateReader;
  /** How long a task whose worker's stream ended waits for that worker to come back. */
  readonly orphanGraceMs?: number;
  /** How long an idle run stays in memory. */
  readonly idleMs?: number;
  /** Runs that stay in memory however idle they are; left out: none. */
  readonly residentKept?: number;
}

/** Version of the event payloads' schema, in every event. */
export const schemaId = 1;

export class ShardContext {
  readonly options: ShardOptions;
  readonly orphanGraceMs: number;
  readonly idleMs: number;
  readonly residentKept: number;
  readonly clock = new HlcClock();
  readonly runs = new Map<Partition, LiveRun>();
  /** Runs changed since their last checkpoint, oldest first, with the index of the first change. */
  readonly dirty = new Map<LiveRun, number>();
  /** Runs of the checkpoint that is being saved. */
  readonly saving = new Set<LiveRun>();
  /** Runs that have something to be told and no worker to tell it to. */
  readonly unassigned = new Set<LiveRun>();
  /** Runs with a task whose worker's stream ended, and some that had one. */
  readonly orphaned = new Set<LiveRun>();
  readonly pool = new WorkerPool<LiveRun>();
  readonly ready = new ReadyQueue<LiveRun>();
  readonly timers = new TimerHeap<ShardTimer>();
  readonly waiting = new Map<RequestId, LiveRun>();
  readonly queries = new Map<
    number,
    { readonly live: LiveRun; readonly query: WaitingQuery; readonly session: SessionId; readonly after: Barrier }
  >();
  nextQuery = 1;
  /** Timers due before this are in the heap. */
  horizonMs = 0;
  armedMs = Number.POSITIVE_INFINITY;

  /** Physical time of the step, never below the log's own clock. */
  nowMs = 0;
  lastIndex: Index = asIndex(0);
  effects: Effect[] = [];
  private touched: LiveRun[] = [];
  private record: Writer | undefined;
  private deliveredSeq = 0;

  constructor(options: ShardOptions) {
    this.options = options;
    this.orphanGraceMs = options.orphanGraceMs ?? 1000;
    this.idleMs = options.idleMs ?? 5000;
    this.residentKept = options.residentKept ?? 0;
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

  /** Barrier of everything that the run's state rests on now. */
  committed(live: LiveRun): Barrier {
    return live.appliedIndex === 0 ? now : { until: "committed", index: asIndex(live.appliedIndex) };
  }

  /** The run in memory, loaded from its checkpoint if need be; undefined when it has no events. */
  find(partition: Partition): LiveRun | undefined {
    const live = this.runs.get(partition);
    if (live !== undefined) return live.chain.size === 0 ? undefined : live;
    const saved = this.options.states.load(partition);
    if (saved === undefined) return undefined;
    const loaded = decodeState(partition, saved);
    this.runs.set(partition, loaded);
    loaded.touchedMs = this.nowMs;
    return loaded;
  }

  findOrCreate(partition: Partition): LiveRun {
    const found = this.find(partition) ?? this.runs.get(partition);
    if (found !== undefined) return found;
    const made = new LiveRun(partition, emptyRun(runOf(partition)), new PartitionChain(partition), 0);
    this.runs.set(partition, made);
    return made;
  }

  /** Appends an event to the run's chain and the open record, and applies it. Returns its sequence. */
  append(live: LiveRun, event: RunEvent, identity: IdentityInit, inputHash: Uint8Array = noBytes): number {
    const w = this.openRecord();
    this.clock.tick(this.nowMs);
    const { timeMs, logical } = this.clock;
    const seq = live.chain.size;
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
    if (isForGuest(event.kind)) live.fresh.push(bytes);
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
    this.record = undefined;
    this.options.log.end();
  }

  /** Hash of what an idempotent start must repeat. */
  inputHash(type: string, input: Payload | undefined): Uint8Array {
    const out = new Uint8Array(32);
    const w = new Writer(256);
    w.text(10, type);
    if (input !== undefined) w.field(18, toBytes(encodePayload, input));
    this.options.hasher.sha256(w.bytes.subarray(0, w.at), out);
    return out;
  }

  private openRecord(): Writer {
    if (this.record !== undefined) return this.record;
    this.lastIndex = asIndex(this.lastIndex + 1);
    this.record = this.options.log.begin(this.options.shard, this.lastIndex, this.options.term);
    return this.record;
  }

  private changed(live: LiveRun): void {
    live.appliedIndex = this.lastIndex;
    live.touchedMs = this.nowMs;
    if (!this.dirty.has(live)) this.dirty.set(live, this.lastIndex);
    if (this.touched.at(-1) !== live) this.touched.push(live);
  }
}

/** The saved state must be of the current format: others are rebuilt from the log before use. */
export function decodeState(partition: Partition, saved: Uint8Array): LiveRun {
  const state = fromBytes(decodeRunState, saved);
  if (state.format !== stateFormat) throw new RangeError(`Cannot load ${partition}: state format ${state.format}, want ${stateFormat}`);
  const chain = new PartitionChain(partition, state);
  return new LiveRun(partition, loadRun(runOf(partition), state), chain, state.appliedIndex);
}
