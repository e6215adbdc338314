/**
 * The shards of a log store, and which of them the writes under way have something of.
 *
 * The same for each store: what differs between them is where bytes go. A group commit touches
 * only the shards that have something in it, however many there are.
 */
import { asIndex, assert, asTerm, type Index, type ShardId, type Term } from "#core/base";
import type { HardState, LogBase, LogEntry, LogUsage, LogView } from "./log-store.ts";
import type { ReadBounds } from "./record-places.ts";
import type { ShardFacts } from "./shard-fold.ts";
import { noBase, noState, ShardLog } from "./shard-log.ts";

export abstract class ShardLogs implements LogView {
  protected readonly logs = new Map<ShardId, ShardLog>();
  private touched: ShardLog[] = [];
  private airborne: ShardLog[] = [];
  private framesAppended = 0;
  private framesInFlight = 0;
  private framesDurable = 0;
  /** Where the newest frame stands by which a log began anew or ended. */
  private rebasedAt = 0;
  /** Up to where each shard's records are released; those without any are left out. */
  protected readonly releasedTo = new Map<ShardId, Index>();

  shards(): ShardId[] {
    return [...this.logs.keys()];
  }

  base(shard: ShardId): LogBase {
    return this.logs.get(shard)?.base ?? noBase;
  }

  firstIndex(shard: ShardId): Index {
    return asIndex(this.base(shard).index + 1);
  }

  lastIndex(shard: ShardId): Index {
    return this.logs.get(shard)?.appended ?? asIndex(0);
  }

  durableIndex(shard: ShardId): Index {
    return this.logs.get(shard)?.durable ?? asIndex(0);
  }

  term(shard: ShardId, index: Index): Term | undefined {
    const log = this.logs.get(shard);
    if (log === undefined) return index === 0 ? asTerm(0) : undefined;
    return log.term(index);
  }

  released(shard: ShardId): Index {
    return this.releasedTo.get(shard) ?? asIndex(0);
  }

  abstract usage(): LogUsage;

  hardState(shard: ShardId): HardState {
    return this.logs.get(shard)?.state ?? noState;
  }

  isRemoved(shard: ShardId): boolean {
    return this.logs.get(shard)?.isRemoved ?? false;
  }

  position(): number {
    return this.framesAppended;
  }

  durablePosition(): number {
    return this.framesDurable;
  }

  setReplicated(shard: ShardId, isReplicated: boolean): void {
    this.logOf(shard).isReplicated = isReplicated;
  }

  takeAppended(shard: ShardId): LogEntry[] {
    const log = this.logs.get(shard);
    if (log === undefined || log.taken.length === 0) return [];
    const { taken } = log;
    log.taken = [];
    return taken;
  }

  /** What is known of a shard beside its records. */
  protected facts(shard: ShardId): ShardFacts {
    const log = this.logs.get(shard);
    return {
      hasLog: log !== undefined,
      base: log?.base ?? noBase,
      isRemoved: log?.isRemoved ?? false,
      state: log?.state ?? noState,
      released: this.released(shard),
    };
  }

  protected logOf(shard: ShardId): ShardLog {
    let log = this.logs.get(shard);
    if (log === undefined) {
      log = new ShardLog(shard);
      this.logs.set(shard, log);
    }
    return log;
  }

  /** False where that is so already. */
  protected releasing(shard: ShardId, through: Index): boolean {
    if (through <= this.released(shard)) return false;
    const log = this.logs.get(shard);
    const isArchive = log === undefined || log.isRemoved;
    assert(
      isArchive || through <= log.base.index,
      `only archive is released: the log of shard ${shard} begins behind ${log?.base.index}, got ${through}`,
    );
    this.releasedTo.set(shard, through);
    this.framesAppended++;
    return true;
  }

  /** What reads may see of the shard. */
  protected bounds(shard: ShardId): ReadBounds {
    const log = this.logs.get(shard);
    return { base: log?.base.index ?? 0, end: Math.max(log?.durable ?? 0, log?.leaving ?? 0) + 1, released: this.released(shard) };
  }

  /** The log begins anew behind `base`, or ends. */
  protected rebasing(shard: ShardId, base: LogBase, isRemoved = false): ShardLog {
    const log = this.logOf(shard);
    log.rebase(base, isRemoved);
    this.touch(log);
    this.rebasedAt = this.framesAppended;
    return log;
  }

  /** A log that begins anew, or ends, does so for the disk as well. */
  protected isRebaseDurable(): boolean {
    return this.rebasedAt <= this.framesDurable;
  }

  /** The shard's log, which has entries [begin, end). */
  protected appendedLog(shard: ShardId, begin: number, end: number): ShardLog {
    const log = this.logs.get(shard) ?? new ShardLog(shard);
    const has = begin > log.base.index && end <= log.appended + 1;
    assert(has, `shard ${shard} has entries ${log.base.index + 1} to ${log.appended}, not ${begin} to ${end - 1}`);
    return log;
  }

  /** What a scan goes through: all that is durable of the log, or all that there is where there is no log. */
  protected scanRange(shard: ShardId, from: number, end: number | undefined): { readonly from: number; readonly end: number } {
    if (end !== undefined) return { from, end };
    const log = this.logs.get(shard);
    return { from, end: log === undefined || log.isRemoved ? Number.POSITIVE_INFINITY : log.durable + 1 };
  }

  /** A record is about to be written for the shard. */
  protected appending(shard: ShardId, index: number, term: number): ShardLog {
    const log = this.logOf(shard);
    assert(!log.isRemoved, `Cannot append to shard ${shard}: its replica is removed, and comes back with a base`);
    log.append(index, term);
    this.touch(log);
    return log;
  }

  /** Frames that change no shard's log join the batch that gathers. */
  protected counted(frames: number): void {
    this.framesAppended += frames;
  }

  /** A frame of the shard joins the batch that gathers. */
  protected touch(log: ShardLog): void {
    this.framesAppended++;
    if (log.isTouched) return;
    log.isTouched = true;
    this.touched.push(log);
  }

  /** The batch that gathered is being written. */
  protected takeOff(): void {
    const batch = this.touched;
    this.touched = this.airborne;
    this.airborne = batch;
    for (const log of batch) {
      log.inFlight = log.appended;
      log.isTouched = false;
      log.isLeavingInFlight = log.leaving > 0;
    }
    this.framesInFlight = this.framesAppended;
  }

  /** The batch that was being written is durable. */
  protected touchDown(): void {
    for (const log of this.airborne) {
      log.durable = log.inFlight;
      if (log.isLeavingInFlight) log.leaving = 0;
      log.isLeavingInFlight = false;
    }
    this.airborne.length = 0;
    this.framesDurable = this.framesInFlight;
  }

  /** What was found at opening is the log as it is. */
  protected settle(): void {
    for (const log of this.logs.values()) log.settle();
  }
}
