/** A log in memory, as Raft reads it; the parts that are written are written by its owner. */
import { asIndex, asTerm, type Index, type Term } from "#core/base";
import { type ConfState, type Entry, entryBytes, type HardState, nobody, noConf, type RaftStorage, type SnapshotMeta } from "#core/raft";

export class MemoryStorage implements RaftStorage {
  hard: HardState = { term: asTerm(0), vote: nobody, commit: asIndex(0) };
  conf: ConfState = noConf;
  /** What the log stands on. */
  base = { index: asIndex(0), term: asTerm(0) };
  log: Entry[] = [];
  /** What a member that is behind gets; by default nothing. */
  latest: () => SnapshotMeta | "later" = () => "later";

  initialState(): { hard: HardState; conf: ConfState } {
    return { hard: this.hard, conf: this.conf };
  }

  firstIndex(): Index {
    return asIndex(this.base.index + 1);
  }

  lastIndex(): Index {
    return asIndex(this.base.index + this.log.length);
  }

  term(index: number): Term | "compacted" | "unavailable" {
    if (index < this.base.index) return "compacted";
    if (index === this.base.index) return this.base.term;
    return this.log[index - this.base.index - 1]?.term ?? "unavailable";
  }

  entries(begin: number, end: number, maxBytes: number): readonly Entry[] | "compacted" | "unavailable" {
    if (begin <= this.base.index) return "compacted";
    if (end > this.lastIndex() + 1) return "unavailable";
    const out: Entry[] = [];
    let bytes = 0;
    for (const entry of this.log.slice(begin - this.base.index - 1, end - this.base.index - 1)) {
      bytes += entryBytes(entry);
      if (out.length > 0 && bytes > maxBytes) break;
      out.push(entry);
    }
    return out;
  }

  snapshot(): SnapshotMeta | "later" {
    return this.latest();
  }

  append(entries: readonly Entry[]): void {
    const first = entries[0];
    if (first === undefined) return;
    if (first.index > this.lastIndex() + 1 || first.index <= this.base.index)
      throw new RangeError(`Cannot append entry ${first.index} to a log of ${this.firstIndex()} to ${this.lastIndex()}`);
    this.log.length = first.index - this.base.index - 1;
    this.log.push(...entries);
  }

  install(snapshot: SnapshotMeta): void {
    this.base = { index: snapshot.index, term: snapshot.term };
    this.conf = snapshot.conf;
    this.log = [];
  }

  /** Drops entries up to `index`. */
  compact(index: number): void {
    if (index <= this.base.index) return;
    const term = this.term(index);
    if (typeof term === "string") throw new RangeError(`Cannot compact to ${index}: ${term}`);
    this.log = this.log.slice(index - this.base.index);
    this.base = { index: asIndex(index), term };
  }
}
