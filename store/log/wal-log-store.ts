/**
 * The write-ahead log on disk: group commit with one write in flight.
 *
 * Records gather in one of two batches while the other is written by a single O_DSYNC write; when
 * that returns, everything in it is durable, and what gathered meanwhile goes next. A failed
 * write is either a full disk, which is tried again in the same place and acknowledges nothing
 * meanwhile, or poison: nothing is acknowledged any more.
 */
import fs from "node:fs";
import { dirname } from "node:path";
import { assert, HopError, type Index, noBytes, present, type ShardId, type Term } from "#core/base";
import type { Writer } from "#proto";
import { BoundedEntries } from "./bounded-entries.ts";
import { openCurrent } from "./current-segment.ts";
import { type DiskError, isNoSpace, type LogDisk, realDisk, syncFolder } from "./log-disk.ts";
import type { EntryKind, HardState, LogEntry, LogRecord, LogStore, LogUsage } from "./log-store.ts";
import { RecentEntries } from "./recent-entries.ts";
import { RecordBatch } from "./record-batch.ts";
import { archiveKindOf, FrameKind, recordKindOf } from "./record-frame.ts";
import type { IndexRange } from "./record-places.ts";
import { type Recovered, recoverLog, type TornTail } from "./recovery.ts";
import { type ClosedSegment, headerBytes, type OpenSegment, type Segment } from "./segment-file.ts";
import { type Reach, SegmentReader } from "./segment-reader.ts";
import { retryMs, SegmentSupply } from "./segment-supply.ts";
import { noBase, type ShardLog } from "./shard-log.ts";
import { ShardLogs } from "./shard-logs.ts";
import { writeSidecar } from "./sidecar.ts";
import { type TrimmedLog, Trimmer } from "./trimmer.ts";
import { slackSegments, type TrimView, usageSteps } from "./trimming.ts";

export interface WalOptions {
  readonly dir: string;
  /** Size of a segment; where space is short, ones of 1 MiB or more take its place. */
  readonly segmentBytes?: number;
  /** Size of each of the two buffers; a larger batch borrows memory. */
  readonly bufferBytes?: number;
  readonly disk?: LogDisk;
  /** Least time between two looks at which segments may go. */
  readonly trimMs?: number;
  /** So much of the files may be of no use, beside half of the rest, before records are moved out of the oldest one. */
  readonly trimSlackBytes?: number;
}

/** How long a record that nothing waits for may stay in memory. */
const rideMs = 2;
/** A commit marker follows when nothing was written for this long. */
const idleMs = 10;
/** More than this in memory, and the disk is too far behind to take another decision. */
const pendingBytesMax = 128 << 20;

/** Prepared space that is kept back for what was decided before a full disk was noticed. */
const reserveBytesMax = 1 << 20;

const segmentBytesOf = (options: WalOptions) => options.segmentBytes ?? 64 << 20;

export class WalLogStore extends ShardLogs implements LogStore {
  onDurable = () => {};
  onPoison: (cause: Error) => void = () => {};
  readonly logId: string;
  /** What opening cut off, if anything: unacknowledged bytes of a write that a crash interrupted. */
  readonly torn: TornTail | undefined;

  private readonly disk: LogDisk;
  private readonly closedSegments: ClosedSegment[];
  private readonly supply: SegmentSupply;
  private readonly reader: SegmentReader;
  private readonly recent = new RecentEntries();
  private readonly trimmer: Trimmer;
  /** The shard of the record that is open. */
  private opened: { readonly log: ShardLog; readonly kind: EntryKind } | undefined;

  private filling: RecordBatch;
  private flying: RecordBatch;
  private written = 0;
  private isBusy = false;
  private isArmed = false;
  private isUrgent = false;
  private isFull = false;
  private poison: Error | undefined;
  private closing: (() => void) | undefined;
  private rideTimer: ReturnType<typeof setTimeout> | undefined;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private idleTimer: ReturnType<typeof setTimeout> | undefined;
  private flushes = 0;
  private endsInMarker = false;
  /** Told when the batch that gathers, and the one that is written, is durable or never will be. */
  private gatheringWaits: ((isDurable: boolean) => void)[] = [];
  private flyingWaits: ((isDurable: boolean) => void)[] = [];
  /** What may go of the files was changed by the batches. */
  private isTrimDue = false;

  /**
   * Opens the log in `dir`, or begins one there. The caller holds the folder's lock.
   *
   * Rejects with `CorruptionError` where acknowledged records are damaged, and leaves the folder
   * as it was when the log is of a newer format.
   */
  static async open(options: WalOptions): Promise<WalLogStore> {
    const disk = options.disk ?? realDisk;
    try {
      const made = fs.mkdirSync(options.dir, { recursive: true, mode: 0o700 });
      if (made !== undefined) await syncFolder(disk, dirname(made));
      const recovered = recoverLog(options.dir);
      const current = await openCurrent(recovered, { dir: options.dir, segmentBytes: segmentBytesOf(options), disk });
      return new WalLogStore(options, disk, recovered, current);
    } catch (error) {
      if (error instanceof HopError) throw error;
      const reason = isNoSpace(error) ? "NO_SPACE" : "STORE_UNAVAILABLE";
      throw new HopError(reason, `Cannot open the log in ${options.dir}: ${(error as Error).message}`, { cause: error });
    }
  }

  private constructor(options: WalOptions, disk: LogDisk, recovered: Recovered | undefined, current: OpenSegment) {
    super();
    this.disk = disk;
    this.filling = new RecordBatch(options.bufferBytes ?? 8 << 20);
    this.flying = new RecordBatch(options.bufferBytes ?? 8 << 20);
    this.logId = current.header.logId;
    this.torn = recovered?.torn;
    this.closedSegments = (recovered?.segments ?? []).filter((one) => one.header.number !== current.header.number);
    this.supply = new SegmentSupply(current, { dir: options.dir, disk, segmentBytes: segmentBytesOf(options) });
    this.reader = new SegmentReader(() => this.segments());
    for (const [shard, log] of recovered?.logs ?? []) this.logs.set(shard, log);
    for (const [shard, through] of recovered?.released ?? []) this.releasedTo.set(shard, through);
    const slackBytes = options.trimSlackBytes ?? slackSegments * segmentBytesOf(options);
    this.trimmer = new Trimmer(this.trimmed(), { disk, slackBytes, lookMs: options.trimMs ?? 1000 });
    this.settle();
    this.supply.replenish();
    this.trimmer.due();
    if (this.logs.size > 0) this.watchIdle();
  }

  begin(shard: ShardId, index: Index, term: Term, kind: EntryKind = "data"): Writer {
    this.opened = { log: this.appending(shard, index, term), kind };
    return this.filling.begin({ kind: recordKindOf(kind), shard, index, term });
  }

  end(): void {
    assert(this.opened !== undefined, "a record that ends has begun");
    const { log, kind } = this.opened;
    this.opened = undefined;
    if (log.isReplicated !== undefined) this.keep(log, kind);
    else this.recent.forget(log.shard);
    this.filling.end();
  }

  append(shard: ShardId, entries: readonly LogEntry[]): void {
    for (const { index, term, kind, data } of entries) {
      this.appending(shard, index, term);
      this.filling.add({ kind: recordKindOf(kind), shard, index, term }, data);
      this.recent.add(shard, { index, term, kind, data: data.slice() });
    }
  }

  setHardState(shard: ShardId, state: HardState): void {
    const log = this.logOf(shard);
    log.vote(state);
    this.filling.addVote({ kind: FrameKind.hardState, shard, index: state.commit, term: state.term }, state.vote);
    this.touch(log);
  }

  setBase(shard: ShardId, index: Index, term: Term): void {
    this.rebasing(shard, { index, term });
    this.recent.forget(shard);
    this.filling.add({ kind: FrameKind.base, shard, index, term });
  }

  compact(shard: ShardId, index: Index): void {
    const log = this.logOf(shard);
    if (index === log.base.index) return;
    log.compact(index);
    this.filling.add({ kind: FrameKind.compacted, shard, index, term: log.base.term });
    this.counted(1);
  }

  release(shard: ShardId, through: Index): void {
    if (!this.releasing(shard, through)) return;
    this.filling.add({ kind: FrameKind.released, shard, index: through, term: 0 });
    this.isTrimDue = true;
  }

  remove(shard: ShardId): void {
    const { state } = this.rebasing(shard, noBase, true);
    this.recent.forget(shard);
    this.filling.addVote({ kind: FrameKind.removed, shard, index: state.commit, term: state.term }, state.vote);
  }

  ingestArchive(shard: ShardId, records: readonly LogEntry[]): void {
    for (const { index, term, kind, data } of records) this.filling.add({ kind: archiveKindOf(kind), shard, index, term }, data);
    this.counted(records.length);
  }

  entries(shard: ShardId, begin: Index, end: Index, maxBytes: number): LogEntry[] {
    const log = this.appendedLog(shard, begin, end);
    const out = new BoundedEntries(maxBytes);
    const next = () => begin + out.list.length;
    // Only a stretch that was taken whole is followed by the next one.
    const recent = Math.min(this.recent.first(shard) ?? end, end);
    const written = Math.min(recent, log.durable + 1);
    if (next() < written) this.reader.entries(this.reach(shard), { from: next(), end: written }, out);
    if (next() >= written && next() < recent) this.unwritten(shard, { from: next(), end: recent }).every((entry) => out.add(entry));
    if (next() < recent) return out.list;
    while (next() < end) if (!out.add(present(this.recent.at(shard, next()), "an entry that was kept"))) break;
    return out.list;
  }

  hasRoom(): boolean {
    if (this.poison !== undefined || this.isFull || this.closing !== undefined) return false;
    const pending = this.filling.bytes + this.flying.bytes;
    if (pending > pendingBytesMax) return false;
    return !this.supply.lacksSpace || this.supply.aheadBytes() - pending > Math.min(reserveBytesMax, this.supply.current.limit >> 3);
  }

  kick(urgent: boolean): void {
    if (urgent) this.isUrgent = true;
    else if (!this.isUrgent) this.rideTimer ??= setTimeout(this.rideOver, rideMs);
    if (this.isUrgent && !this.isBusy && !this.isArmed) {
      this.isArmed = true;
      queueMicrotask(this.flush);
    }
  }

  async read(shard: ShardId, index: Index): Promise<LogRecord> {
    return this.reader.read(this.reach(shard), index);
  }

  scan(shard: ShardId, from: Index, end?: Index): AsyncIterable<LogRecord> {
    return this.reader.scan(this.reach(shard), this.scanRange(shard, from, end));
  }

  scanMany(shard: ShardId, from: Index, end?: Index): AsyncIterable<readonly LogRecord[]> {
    return this.reader.scanMany(this.reach(shard), this.scanRange(shard, from, end));
  }

  replay(shard: ShardId, from: Index, end?: Index): Iterable<LogRecord> {
    return this.reader.replay(this.reach(shard), this.scanRange(shard, from, end));
  }

  /** Writes what was appended and a marker, then lets go of the files. A full disk is not waited for. */
  async close(): Promise<void> {
    if (this.closing !== undefined) return;
    await new Promise<void>((resolve) => {
      this.closing = resolve;
      clearTimeout(this.idleTimer);
      this.closeWhenWritten();
    });
    clearTimeout(this.rideTimer);
    clearTimeout(this.retryTimer);
    this.tellNever();
    await this.trimmer.stop();
    await this.supply.close();
    const { path, header, index, end } = this.supply.current;
    // Says that opening need not walk the segment: it ended in order.
    if (this.poison === undefined && this.endsInMarker && !this.isBusy) writeSidecar(path, header, index, end);
    this.poison ??= new Error("The log is closed");
  }

  usage(): LogUsage {
    const { movedBytes, trimmedBytes } = this.trimmer;
    const steps = usageSteps(this.view(), this.supply.bytes());
    for (let step = steps.next(); ; step = steps.next()) if (step.done === true) return { ...step.value, movedBytes, trimmedBytes };
  }

  private reach(shard: ShardId): Reach {
    return { shard, bounds: this.bounds(shard), released: () => this.released(shard) };
  }

  private segments(): Segment[] {
    return [...this.closedSegments, this.supply.current];
  }

  private view(): TrimView {
    return {
      closed: this.closedSegments,
      segments: this.segments(),
      bounds: (shard) => this.bounds(shard),
      facts: (shard) => this.facts(shard),
    };
  }

  private trimmed(): TrimmedLog {
    return {
      view: () => this.view(),
      openBytes: () => this.supply.bytes(),
      isReady: () => this.isRebaseDurable() && !this.isFull && this.poison === undefined && this.closing === undefined,
      hasRoom: () => this.hasRoom(),
      addAside: (add) => this.addAside(add),
      dropOldest: () => void this.closedSegments.shift(),
    };
  }

  private addAside(add: (batch: RecordBatch) => void): Promise<boolean> {
    add(this.filling);
    this.kick(false);
    return new Promise((resolve) => this.gatheringWaits.push(resolve));
  }

  private tell(waits: ((isDurable: boolean) => void)[], isDurable: boolean): void {
    for (const tell of waits.splice(0)) tell(isDurable);
  }

  /** Leaves a copy of the open record for who takes it, and for who asks for it again. */
  private keep(log: ShardLog, kind: EntryKind): void {
    const data = log.isReplicated === true ? this.filling.openBody() : noBytes;
    const entry = { index: log.appended, term: log.term(log.appended) as Term, kind, data };
    log.taken.push(entry);
    if (log.isReplicated === true) this.recent.add(log.shard, entry);
    else this.recent.forget(log.shard);
  }

  /** Entries that are in the batches only. */
  private unwritten(shard: ShardId, range: IndexRange): LogEntry[] {
    const out: LogEntry[] = [];
    for (const batch of [this.flying, this.filling]) batch.collect(shard, range, out);
    return out;
  }

  private tellNever(): void {
    this.tell(this.flyingWaits, false);
    this.tell(this.gatheringWaits, false);
  }

  private closeWhenWritten(): void {
    if (this.closing === undefined) return;
    if (this.poison !== undefined || this.isFull) this.closing();
    else if (this.isBusy) return;
    else if (this.filling.bytes > 0) this.flush();
    else if (!this.endsInMarker) this.writeMarker();
    else this.closing();
  }

  private readonly rideOver = (): void => {
    this.rideTimer = undefined;
    this.kick(true);
  };

  /**
   * Swaps the batches and starts the write.
   *
   * Measured by scripts/bench-wal.ts on two cores, ext4, raw synchronous write 0.2 ms; records of
   * 256 bytes, append to durable, p50/p99 ms, records a second, CPU a record: 1 waiter .22/.39,
   * 4,400, 132 µs; 8: .23/.41, 33,000, 19 µs; 64: .25/.93, 224,000, 3 µs; 512: .48/2.1, 739,000,
   * 1 µs. Reopening and replaying 440 MB: 0.56 s.
   */
  private readonly flush = (): void => {
    this.isArmed = false;
    if (this.isBusy || this.poison !== undefined || this.filling.bytes === 0) return;
    assert(!this.filling.isOpen, "no record is open when the log is flushed");
    this.isBusy = true;
    this.isUrgent = false;
    if (this.rideTimer !== undefined) {
      clearTimeout(this.rideTimer);
      this.rideTimer = undefined;
    }
    const batch = this.filling;
    this.filling = this.flying;
    this.flying = batch;
    const waits = this.gatheringWaits;
    this.gatheringWaits = this.flyingWaits;
    this.flyingWaits = waits;
    this.takeOff();
    this.place();
  };

  /** Finds the batch its place: behind the last one, or at the start of the next segment. */
  private place(): void {
    const segment = this.supply.current;
    const end = segment.end + this.flying.bytes;
    // A batch larger than a segment makes an empty one longer; none is ever cut in two.
    if (end > segment.limit && segment.end > headerBytes) return void this.turnOver();
    // Zeros on their way to the same bytes would wipe the batch out.
    if (segment.zeroing !== undefined && end > segment.zeroedTo) return void segment.zeroing.then(this.replace, this.replace);
    this.flying.seal(segment.header, segment.end);
    if (end > segment.zeroedTo) segment.zeroedTo = end;
    this.written = 0;
    this.push();
  }

  private readonly replace = (): void => this.place();

  private push(): void {
    const { current } = this.supply;
    const batch = this.flying;
    this.disk.write(current.fd, batch.writer.bytes, this.written, batch.bytes - this.written, current.end + this.written, this.wrote);
  }

  private readonly wrote = (error: DiskError, count: number): void => {
    if (error) return this.failed(error, () => this.push());
    this.written += count;
    if (this.written < this.flying.bytes) {
      if (count > 0) return this.push();
      return this.retryLater(() => this.push());
    }
    this.landed();
  };

  private landed(): void {
    const batch = this.flying;
    const { current } = this.supply;
    batch.eachFrame(current.end, (head) => current.index.note(head));
    current.end += batch.bytes;
    this.touchDown();
    this.isFull = false;
    this.supply.isHeld = false;
    this.endsInMarker = batch.count === 0;
    this.flushes++;
    const acknowledges = batch.count > 0;
    batch.clear();
    this.isBusy = false;
    if (this.flyingWaits.length > 0) this.tell(this.flyingWaits, true);
    if (this.isTrimDue) this.dueNow();
    if (acknowledges) this.onDurable();
    if (this.isUrgent) this.kick(true);
    if (!this.endsInMarker) this.watchIdle();
    this.supply.replenish();
    this.closeWhenWritten();
  }

  private dueNow(): void {
    this.isTrimDue = false;
    this.trimmer.due();
  }

  private async turnOver(): Promise<void> {
    const full = this.supply.current;
    try {
      await this.supply.turnOver();
    } catch (error) {
      return this.failed(error as Error, this.replace);
    }
    const closed = { path: full.path, header: full.header, index: full.index, end: full.end, size: full.zeroedTo };
    this.closedSegments.push(closed);
    this.place();
    this.trimmer.due();
    await full.zeroing?.catch(() => {});
    closed.size = full.zeroedTo;
    fs.closeSync(full.fd);
    writeSidecar(full.path, full.header, full.index, full.end);
  }

  private failed(error: Error, again: () => void): void {
    if (isNoSpace(error)) return this.retryLater(again);
    // The kernel may have dropped the dirty pages: a second try could succeed without the bytes being there.
    this.poison = new Error("Cannot write the log: the disk failed, and what was not acknowledged is lost with this process", {
      cause: error,
    });
    this.onPoison(this.poison);
    this.tellNever();
    void this.trimmer.stop();
    this.closeWhenWritten();
  }

  private retryLater(again: () => void): void {
    this.isFull = true;
    this.supply.isHeld = true;
    this.closeWhenWritten();
    this.retryTimer = setTimeout(again, retryMs);
  }

  /** One timer for all flushes of a busy time: it looks whether there was another one since. */
  private watchIdle(): void {
    if (this.idleTimer !== undefined || this.closing !== undefined) return;
    const seen = this.flushes;
    this.idleTimer = setTimeout(() => {
      this.idleTimer = undefined;
      if (this.poison !== undefined || this.endsInMarker) return;
      if (this.flushes !== seen || this.isBusy || this.filling.bytes > 0) this.watchIdle();
      else this.writeMarker();
    }, idleMs);
  }

  private writeMarker(): void {
    this.filling.addMarker();
    this.flush();
  }
}
