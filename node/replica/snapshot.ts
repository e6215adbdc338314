/**
 * The state of a shard on its way to a new replica: the logs that its histories lead into, its
 * checkpointed states, and where its log goes on.
 *
 * Both halves are synchronous and go chunk by chunk; whoever moves the chunks decides the pace.
 * What was received counts for nothing until the last chunk is there and fits.
 */
import {
  asIndex,
  asShardId,
  asTerm,
  type Hasher,
  HopError,
  type Index,
  instanceOf,
  type KeyRange,
  namespaceOf,
  noBytes,
  type RunId,
  type ShardId,
  type Term,
} from "#core/base";
import type { ConfState, SnapshotMeta } from "#core/raft";
import {
  type ArchivedRecord,
  decodeConfState,
  decodeShardHeader,
  decodeSnapshotChunk,
  encodeSnapshotChunk,
  fromBytes,
  type IndexedRun,
  RaftEntryKind,
  type SealedLog,
  type ShardHeader,
  type SnapshotChunk,
  type SnapshotEnd,
  type SnapshotRow,
  toBytes,
} from "#proto";
import type { CheckpointExport, CheckpointMeta, CheckpointStore, LogStore, Projector, ShardRow, StoredRun } from "#store";

const chunkBytes = 1 << 20;

export interface SnapshotStores {
  readonly log: LogStore;
  readonly checkpoint: CheckpointStore;
  readonly hasher: Hasher;
  /** Left out: the index of runs does not travel. */
  readonly projector?: Projector;
  /** Left out: there is no object storage. */
  readonly sealed?: KnownSealed;
}

/** What is known here of sealed logs. */
export interface KnownSealed {
  /** The shard's records through there are certainly sealed; 0 = nobody knows. */
  sealedThrough(shard: ShardId): number;
}

/** A hash over all chunks so far: of the one before and the chunk. */
function chained(hasher: Hasher, before: Uint8Array, chunk: Uint8Array): Uint8Array {
  const pair = new Uint8Array(64);
  pair.set(before);
  hasher.sha256(chunk, pair.subarray(32));
  const out = new Uint8Array(32);
  hasher.sha256(pair, out);
  return out;
}

export interface Snapshot {
  /** It is the fold of the log through here. */
  readonly index: Index;
  /** Keys of the shard as of then. */
  readonly range: KeyRange;
  /** To be read from at once: until then, and until its end, it keeps the states as they are now. */
  readonly chunks: Generator<Uint8Array>;
}

/** The chunks of a shard's snapshot, as of its last checkpoint. Throws `HopError` STORE_UNAVAILABLE where there is none. */
export function* snapshotChunks(stores: SnapshotStores, shard: ShardId): Generator<Uint8Array> {
  yield* takeSnapshot(stores, shard, { withArchive: true }).chunks;
}

/** `withArchive`: with the logs that the shard's histories lead into, as far as they are here. Throws like `snapshotChunks`. */
export function takeSnapshot(stores: SnapshotStores, shard: ShardId, options: { readonly withArchive: boolean }): Snapshot {
  const saved = stores.checkpoint.meta(shard);
  if (saved === undefined)
    throw new HopError("STORE_UNAVAILABLE", `Cannot give a snapshot of shard ${shard}: it has no checkpoint yet`, { retryAfterMs: 200 });
  const header = fromBytes(decodeShardHeader, saved.header);
  const states = stores.checkpoint.exportRange(shard, { first: header.first, last: header.last });
  const meta = states.meta ?? saved;
  const indexed = Math.min(stores.projector?.appliedIndex(shard) ?? 0, meta.appliedIndex);
  const logs = options.withArchive ? logsToSend(stores, { shard, header, indexed }) : [];
  return {
    index: asIndex(meta.appliedIndex),
    range: { first: header.first, last: header.last },
    chunks: chunksOf(stores, { meta, range: header, states, indexed, logs }),
  };
}

/** A log that histories lead into: its records up to `sealed` stay where they are. */
interface LogToSend {
  readonly shard: ShardId;
  readonly sealed: Index;
}

function logsToSend(
  { log, projector, sealed }: SnapshotStores,
  { shard, header, indexed }: { readonly shard: ShardId; readonly header: ShardHeader; readonly indexed: number },
): LogToSend[] {
  const sealedOf = (each: ShardId) => asIndex(sealed === undefined ? 0 : Math.max(sealed.sealedThrough(each), log.released(each)));
  // What the index of runs has not got yet is taken from the log, at the new member too.
  const own = sealed === undefined ? 0 : Math.min(header.sealedThrough, projector === undefined ? header.sealedThrough : indexed);
  return [...header.ancestor.map(asShardId).map((each) => ({ shard: each, sealed: sealedOf(each) })), { shard, sealed: asIndex(own) }];
}

interface Taken {
  readonly meta: CheckpointMeta;
  readonly range: KeyRange;
  readonly states: CheckpointExport;
  /** The index of runs has the shard's records through there. */
  readonly indexed: number;
  /** What goes along; the shard's own log is the last one. */
  readonly logs: readonly LogToSend[];
}

function* chunksOf({ log, hasher, projector }: SnapshotStores, { meta, range, states, indexed, logs }: Taken): Generator<Uint8Array> {
  const { shard } = meta;
  try {
    let number = 0;
    let hash: Uint8Array = new Uint8Array(32);
    const seal = (parts: Partial<SnapshotChunk>): Uint8Array => {
      const chunk = toBytes(encodeSnapshotChunk, { number: number++, ...nothing, ...parts });
      hash = chained(hasher, hash, chunk);
      return chunk;
    };
    const sealed = logs.filter((each) => each.sealed > 0).map((each) => ({ shard: each.shard, through: each.sealed }));
    if (sealed.length > 0) yield seal({ sealed });
    for (const record of archived(log, logs, { shard, through: meta.appliedIndex })) yield seal({ record });
    for (const batch of states.batches(chunkBytes)) yield seal({ row: batch.map(rowOut) });
    // Rows that are being made anew are not all there: the new member makes its own.
    if (projector !== undefined && !projector.isUnfinished(shard))
      for (const batch of projector.rowsIn({ first: range.first, last: range.last })) yield seal({ run: batch.map(runOut) });
    const end: SnapshotEnd = {
      index: meta.appliedIndex,
      term: log.term(shard, asIndex(meta.appliedIndex)) ?? 0,
      clockMs: meta.clockMs,
      conf: meta.conf,
      header: meta.header,
      headerIndex: meta.headerIndex ?? meta.appliedIndex,
      chunks: number,
      sha256: hash,
      indexed,
    };
    yield toBytes(encodeSnapshotChunk, { number, ...nothing, end });
  } finally {
    states.close();
  }
}

const nothing = { record: [], row: [], run: [], sealed: [], end: undefined };

/** Records of the logs behind what is sealed of them, of the shard's own through `through`, in batches. */
function* archived(
  log: LogStore,
  logs: readonly LogToSend[],
  { shard, through }: { readonly shard: ShardId; readonly through: number },
): Generator<ArchivedRecord[]> {
  let batch: ArchivedRecord[] = [];
  let bytes = 0;
  for (const { shard: each, sealed } of logs) {
    const end = each === shard ? asIndex(through + 1) : undefined;
    for (const { index, term, kind, body } of log.replay(each, asIndex(sealed + 1), end)) {
      if (bytes > 0 && bytes + body.length > chunkBytes) {
        yield batch;
        batch = [];
        bytes = 0;
      }
      batch.push({ shard: each, index, term, kind: kind === "config" ? RaftEntryKind.config : RaftEntryKind.data, body: body.slice() });
      bytes += body.length + 64;
    }
  }
  if (batch.length > 0) yield batch;
}

function rowOut({ partition, key, shard, state, dueMs, index }: ShardRow): SnapshotRow {
  const isDue = Number.isFinite(dueMs);
  return { partition, key, shard, state, dueMs: isDue ? dueMs : 0, isDue, index };
}

/** What a snapshot that is whole and saved leads to. */
export interface Received {
  readonly meta: SnapshotMeta;
  readonly range: KeyRange;
  /** The shard's own records through there did not come, as they are sealed. */
  readonly sealedThrough: Index;
}

export class SnapshotSink {
  private readonly stores: SnapshotStores;
  private readonly shard: ShardId;
  private hash: Uint8Array = new Uint8Array(32);
  private next = 0;
  private sealed: readonly SealedLog[] = [];
  private readonly mayTake: (index: number, range: KeyRange) => boolean;

  /** `mayTake`: the node may have gone on meanwhile, so that these states are of no use any more. */
  constructor(stores: SnapshotStores, shard: ShardId, mayTake: (index: number, range: KeyRange) => boolean = () => true) {
    this.stores = stores;
    this.shard = shard;
    this.mayTake = mayTake;
    stores.checkpoint.dropImport(shard);
  }

  /** Chunks that were taken. */
  get count(): number {
    return this.next;
  }

  /** Takes the next chunk, or the first one again, with which all begins anew. Returns what the snapshot leads to when it was the last one. Throws `HopError` HASH_MISMATCH. */
  take(bytes: Uint8Array): Received | undefined {
    const chunk = fromBytes(decodeSnapshotChunk, bytes);
    if (chunk.number === 0 && this.next > 0) this.beginAnew();
    if (chunk.number !== this.next) throw this.broken(`chunk ${chunk.number}`, `${this.next}`);
    if (chunk.end !== undefined) return this.finish(chunk.end);
    this.next++;
    this.hash = chained(this.stores.hasher, this.hash, bytes);
    if (chunk.sealed.length > 0) this.sealed = chunk.sealed;
    this.keepRecords(chunk.record);
    if (chunk.run.length > 0) this.stores.projector?.takeRows(chunk.run.map(runIn));
    if (chunk.row.length > 0) this.stores.checkpoint.importRows(this.shard, chunk.row.map(rowIn));
    return undefined;
  }

  /** It will not become whole. */
  drop(): void {
    this.stores.checkpoint.dropImport(this.shard);
  }

  private beginAnew(): void {
    this.drop();
    this.next = 0;
    this.hash = new Uint8Array(32);
    this.sealed = [];
  }

  private keepRecords(records: readonly ArchivedRecord[]): void {
    const { log } = this.stores;
    let from = 0;
    for (let to = 1; to <= records.length; to++) {
      const first = records[from] as ArchivedRecord;
      if (to < records.length && records[to]?.shard === first.shard) continue;
      log.ingestArchive(asShardId(first.shard), records.slice(from, to).map(recordIn));
      from = to;
    }
    log.kick(true);
  }

  private finish(end: SnapshotEnd): Received {
    if (end.chunks !== this.next) throw this.broken(`${this.next} chunks`, `${end.chunks}`);
    if (!end.sha256.every((byte, i) => byte === this.hash[i])) throw this.broken("another hash", "that of what was sent");
    const { first, last } = fromBytes(decodeShardHeader, end.header);
    const range = { first, last };
    if (!this.mayTake(end.index, range))
      throw new HopError("STORE_UNAVAILABLE", `The snapshot of shard ${this.shard} as of ${end.index} is of no use here any more`);
    const meta: CheckpointMeta = {
      shard: this.shard,
      appliedIndex: end.index,
      term: end.term,
      clockMs: end.clockMs,
      conf: end.conf.slice(),
      header: end.header.slice(),
      headerIndex: end.headerIndex,
    };
    this.stores.checkpoint.finishImport(range, meta);
    // The log will begin behind it: it may not be lost after that.
    this.stores.checkpoint.sync();
    this.stores.projector?.begin(this.shard, asIndex(end.indexed));
    this.releaseSealed();
    const conf = fromBytes(decodeConfState, end.conf) as unknown as ConfState;
    const sealedThrough = asIndex(this.sealed.find(({ shard }) => shard === this.shard)?.through ?? 0);
    return { meta: { index: asIndex(end.index), term: asTerm(end.term), conf }, range, sealedThrough };
  }

  /** A replica that was here before may have left records that were never committed: nobody is to find those in place of the sealed ones. */
  private releaseSealed(): void {
    const { log } = this.stores;
    for (const { shard, through } of this.sealed) {
      const each = asShardId(shard);
      if (each !== this.shard) log.release(each, archiveThrough(log, each, asIndex(through)));
    }
  }

  private broken(got: string, want: string): HopError {
    return new HopError("HASH_MISMATCH", `Cannot take the snapshot of shard ${this.shard}: got ${got}, want ${want}`);
  }
}

/** As much of it as is archive here. */
export function archiveThrough(log: LogStore, shard: ShardId, through: Index): Index {
  const isLog = log.shards().includes(shard) && !log.isRemoved(shard);
  return isLog ? asIndex(Math.min(log.base(shard).index, through)) : through;
}

function recordIn({ index, term, kind, body }: ArchivedRecord) {
  return {
    index: asIndex(index) as Index,
    term: asTerm(term) as Term,
    kind: kind === RaftEntryKind.config ? ("config" as const) : ("data" as const),
    data: body,
  };
}

function runOut(row: StoredRun): IndexedRun {
  const { key, run, generation, type, status, bundle, note, searchable } = row;
  const { started_ms: startedMs, closed_ms: closedMs, cancel_requested: requested, last_index: lastIndex, expired_ms: expiredMs } = row;
  const { dead_letters: deadLetters } = row;
  const times = { startedMs, closedMs, expiredMs };
  return {
    key,
    run,
    generation,
    type,
    status,
    ...times,
    bundle,
    note,
    cancelRequested: requested !== 0,
    lastIndex,
    searchable,
    deadLetters,
  };
}

function runIn(row: IndexedRun): StoredRun {
  const run = row.run as RunId;
  return {
    key: row.key,
    run,
    generation: row.generation,
    namespace: namespaceOf(run),
    instance: instanceOf(run),
    type: row.type,
    status: row.status,
    started_ms: row.startedMs,
    closed_ms: row.closedMs,
    bundle: row.bundle.slice(),
    note: row.note,
    cancel_requested: row.cancelRequested ? 1 : 0,
    last_index: row.lastIndex,
    expired_ms: row.expiredMs,
    // A node of a version before sends none.
    searchable: row.searchable === "" ? "{}" : row.searchable,
    dead_letters: row.deadLetters,
  };
}

function rowIn({ partition, key, shard, state, dueMs, isDue, index }: SnapshotRow): ShardRow {
  return {
    partition: partition as ShardRow["partition"],
    key,
    shard: asShardId(shard),
    state: state.length === 0 ? noBytes : state,
    dueMs: isDue ? dueMs : Number.POSITIVE_INFINITY,
    index,
  };
}
