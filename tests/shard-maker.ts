/**
 * Shard machines as tests and benchmarks make them: one shard of all keys, led by node 1, unless
 * they say otherwise.
 */
import {
  asNodeId,
  asSessionId,
  asShardId,
  asTerm,
  type Effect,
  type Index,
  type LogWriter,
  type Partition,
  type SessionId,
  type ShardId,
  type StateReader,
  wholeRange,
} from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { type Checkpoint, type Input, type SavedShard, type ShardBirth, ShardMachine, type ShardOptions } from "#core/shard";
import { decodeHello, encodeHello, fromBytes, type HelloInit, toBytes, Writer } from "#proto";
import { bunHasher } from "./hashers.ts";

export const soleShard = asShardId(1);
export const wholeBirth: ShardBirth = { range: wholeRange, ancestors: [], clockMs: 0 };
export const noStates: StateReader = { load: () => undefined, dueBefore: () => [] };

export function makeShard(options: Pick<ShardOptions, "log"> & Partial<ShardOptions>): ShardMachine {
  return new ShardMachine({ shard: soleShard, birth: wholeBirth, hasher: bunHasher, states: noStates, ...options });
}

export interface LeadWith {
  readonly nowMs: number;
  /** Left out: the last record that the machine was given. */
  readonly appliedIndex?: number;
  readonly term?: number;
  readonly epoch?: number;
}

export function lead(machine: ShardMachine, { nowMs, appliedIndex = machine.lastIndex, term = 1, epoch = 1 }: LeadWith): Effect[] {
  return machine.lead({ term: asTerm(term), epoch, node: asNodeId(1), nowMs, appliedIndex });
}

/** A worker that takes everything, as its hello says it; what is given replaces that. */
export function joining(session: SessionId | number, nowMs: number, hello: HelloInit = {}): Extract<Input, { kind: "worker-joined" }> {
  const full: HelloInit = { workerId: "w", modes: ["v8"], activities: ["a", "b"], activitySlots: 1000, runSlots: 1000, ...hello };
  const capacity = new SessionCapacity(full.activitySlots ?? 0);
  return {
    kind: "worker-joined",
    nowMs,
    session: asSessionId(session),
    hello: fromBytes(decodeHello, toBytes(encodeHello, full)),
    capacity,
  };
}

/** Records of one shard in memory, from index `base` + 1 on; an entry without record is empty. */
export class RecordLog implements LogWriter {
  readonly base: number;
  readonly records: Uint8Array[] = [];
  /** Term of each record. */
  readonly terms: number[] = [];
  private readonly writer = new Writer();

  constructor(base = 0) {
    this.base = base;
  }

  get lastIndex(): number {
    return this.base + this.records.length;
  }

  begin(_shard: ShardId, index: Index, term: number): Writer {
    if (index !== this.lastIndex + 1) throw new Error(`Record ${index} comes behind record ${this.lastIndex}`);
    this.terms.push(term);
    this.writer.at = 0;
    return this.writer;
  }

  end(): void {
    this.records.push(this.writer.finish());
  }

  record(index: number): Uint8Array {
    const body = this.records[index - this.base - 1];
    if (body === undefined) throw new Error(`There is no record ${index}`);
    return body;
  }

  /** Puts an entry without record behind the last one. */
  pushEmpty(): void {
    this.terms.push(0);
    this.records.push(new Uint8Array());
  }

  /** Gives a follower every entry from `from` through `to`. */
  feed(machine: ShardMachine, from = this.base + 1, to = this.lastIndex): void {
    for (let index = from; index <= to; index++) {
      const body = this.record(index);
      if (body.length === 0) machine.skip(index);
      else machine.recover(index, body);
    }
  }
}

interface Row {
  readonly state: Uint8Array;
  readonly shard: ShardId;
  readonly key: number;
  readonly dueMs: number;
}

/** What a node's checkpoint holds: states of all its shards, and a header of each. */
export class StateTable implements StateReader {
  readonly rows = new Map<Partition, Row>();
  readonly shards = new Map<ShardId, SavedShard>();

  load(partition: Partition) {
    return this.rows.get(partition);
  }

  dueBefore(beforeMs: number, limit: number, range: { readonly first: number; readonly last: number }): Partition[] {
    const due = [...this.rows].filter(([, row]) => row.dueMs < beforeMs && row.key >= range.first && row.key <= range.last);
    return due
      .sort((a, b) => a[1].dueMs - b[1].dueMs)
      .slice(0, limit)
      .map(([partition]) => partition);
  }

  save(shard: ShardId, taken: Checkpoint, clockMs: number): void {
    for (const { partition, state, key, dueMs } of taken.rows) this.rows.set(partition, { state, shard, key, dueMs });
    const { appliedIndex, header, headerIndex } = taken;
    this.shards.set(shard, { appliedIndex, header, headerIndex, clockMs });
  }

  /** Captures and saves what changed, up to `limit` at a time and `rounds` times. */
  checkpoint(shard: ShardId, machine: ShardMachine, limit = Number.MAX_SAFE_INTEGER, rounds = 1): void {
    for (let round = 0; round < rounds; round++) {
      this.save(shard, machine.capture(limit), machine.clockMs);
      machine.saved();
    }
  }

  /** A copy: the table as of now. */
  copy(): StateTable {
    const made = new StateTable();
    for (const [partition, row] of this.rows) made.rows.set(partition, row);
    for (const [shard, saved] of this.shards) made.shards.set(shard, saved);
    return made;
  }

  /** A machine as the checkpoint has it, and the index that its log is to be read behind. */
  open(shard: ShardId, options: Pick<ShardOptions, "log"> & Partial<ShardOptions>): { machine: ShardMachine; appliedIndex: number } {
    const saved = this.shards.get(shard);
    const machine = makeShard({ shard, states: this, ...options, ...(saved === undefined ? {} : { saved }) });
    return { machine, appliedIndex: saved?.appliedIndex ?? 0 };
  }
}
