/**
 * A member's log as Raft sees it: what storage holds, and on top of it a window of the newest
 * entries in memory.
 *
 *   firstIndex … applied … committed … lastIndex
 *                |— window ————————————————|
 *                     durable |— handed out —| not handed out |
 *
 * The window always holds every entry that is not durable yet. It goes on holding entries until
 * they are applied, within bounds, so that a member in step reads nothing back from storage: an
 * entry costs an append to an array here, and no copy.
 */
import { asIndex, assert, asTerm, type Index, type Term } from "#core/base";
import { type Entry, entryBytes, type RaftStorage, type SnapshotMeta } from "./types.ts";

/** Durable entries that wait to be applied beyond this are read back from storage. */
const windowBytesMax = 16 << 20;

interface Applying {
  readonly last: number;
  readonly bytes: number;
}

export class RaftLog {
  committed: Index;
  /** Handed out to be applied. */
  applying: Index;
  applied: Index;
  private readonly storage: RaftStorage;
  private readonly maxApplyBytes: number;
  private last: Index;
  private lastTerm_: Term;
  /** `window[head + i]` is entry `windowBegin + i`. */
  private window: Entry[] = [];
  private head = 0;
  private windowBegin: number;
  private windowBytes = 0;
  /** Below it all is durable. */
  private unstable: number;
  /** Below it all was handed out. */
  private handedOut: number;
  private snapshot: SnapshotMeta | undefined;
  private isSnapshotHandedOut = false;
  private outstanding: Applying[] = [];
  private applyingBytes = 0;
  private isApplyPaused = false;
  /** Storage could not read what is to be applied: asked again at the next tick. */
  private isApplyBlocked = false;

  constructor(storage: RaftStorage, maxApplyBytes: number) {
    this.storage = storage;
    this.maxApplyBytes = maxApplyBytes;
    const before = asIndex(storage.firstIndex() - 1);
    this.last = storage.lastIndex();
    this.windowBegin = this.last + 1;
    this.unstable = this.last + 1;
    this.handedOut = this.last + 1;
    this.committed = before;
    this.applying = before;
    this.applied = before;
    this.lastTerm_ = asTerm(0);
    const term = this.term(this.last);
    assert(term >= 0, `Cannot open the log: it has no term for its last index ${this.last}`);
    this.lastTerm_ = asTerm(term);
  }

  firstIndex(): Index {
    return this.snapshot === undefined ? this.storage.firstIndex() : asIndex(this.snapshot.index + 1);
  }

  lastIndex(): Index {
    return this.last;
  }

  lastTerm(): Term {
    return this.lastTerm_;
  }

  /** Last index that is durable here. */
  durableIndex(): Index {
    return asIndex(this.unstable - 1);
  }

  /** Term of an entry, or of the one the log stands on; −1 if the log does not have it. */
  term(index: number): number {
    if (index === this.last && this.lastTerm_ > 0) return this.lastTerm_;
    if (index >= this.windowBegin) return index > this.last ? -1 : this.at(index).term;
    if (this.snapshot !== undefined) return index === this.snapshot.index ? this.snapshot.term : -1;
    if (index + 1 < this.storage.firstIndex()) return -1;
    const term = this.storage.term(asIndex(index));
    return typeof term === "number" ? term : -1;
  }

  matches(index: number, term: number): boolean {
    return this.term(index) === term;
  }

  isUpToDate(index: number, term: number): boolean {
    return term > this.lastTerm_ || (term === this.lastTerm_ && index >= this.last);
  }

  private at(index: number): Entry {
    return this.window[this.head + index - this.windowBegin] as Entry;
  }

  /** Appends entries that follow each other, the first at most one behind the last; later ones win. */
  append(entries: readonly Entry[]): void {
    const first = entries[0];
    if (first === undefined) return;
    assert(first.index > this.committed, `Cannot append to the log: index ${first.index} is committed (${this.committed})`);
    assert(first.index <= this.last + 1, `Cannot append to the log: index is ${first.index}, want at most ${this.last + 1}`);
    if (first.index <= this.last) this.truncate(first.index);
    for (const entry of entries) this.push(entry);
  }

  /** One entry at the end: the leader's way. */
  push(entry: Entry): void {
    this.window.push(entry);
    this.windowBytes += entryBytes(entry);
    this.last = entry.index;
    this.lastTerm_ = entry.term;
  }

  private truncate(from: number): void {
    if (from <= this.windowBegin) {
      this.window = [];
      this.head = 0;
      this.windowBegin = from;
      this.windowBytes = 0;
    } else {
      const keep = this.head + from - this.windowBegin;
      for (let i = keep; i < this.window.length; i++) this.windowBytes -= entryBytes(this.window[i] as Entry);
      this.window.length = keep;
    }
    this.unstable = Math.min(this.unstable, from);
    this.handedOut = Math.min(this.handedOut, from);
  }

  /** Takes entries of the leader behind (`index`, `term`). Their last index, or undefined if the logs part before them. */
  take(index: number, term: number, entries: readonly Entry[]): number | undefined {
    if (!this.matches(index, term)) return undefined;
    const fresh = entries.findIndex((entry) => !this.matches(entry.index, entry.term));
    if (fresh >= 0) {
      const first = entries[fresh] as Entry;
      assert(first.index > this.committed, `Cannot take entry ${first.index}: it conflicts with a committed one (${this.committed})`);
      this.append(fresh === 0 ? entries : entries.slice(fresh));
    }
    return index + entries.length;
  }

  /**
   * Largest index at most `index` whose term is at most `term`: where logs may still be equal.
   * Stops, with term 0, where the log's own terms end.
   */
  lastUpTo(index: number, term: number): { index: number; term: number } {
    for (let at = index; at > 0; at--) {
      const own = this.term(at);
      if (own < 0) return { index: at, term: 0 };
      if (own <= term) return { index: at, term: own };
    }
    return { index: 0, term: 0 };
  }

  commitTo(index: number): void {
    if (index <= this.committed) return;
    assert(index <= this.last, `Cannot commit ${index}: the log ends at ${this.last}; part of it was lost`);
    this.committed = asIndex(index);
  }

  /** Entries from `begin` on, as many as fit into `maxBytes` but at least one; undefined if the log does not have them (now). */
  entriesFrom(begin: number, maxBytes: number): readonly Entry[] | undefined {
    return begin > this.last ? [] : this.slice(begin, this.last + 1, maxBytes);
  }

  private slice(begin: number, end: number, maxBytes: number): readonly Entry[] | undefined {
    if (begin < this.firstIndex()) return undefined;
    if (begin >= this.windowBegin) return this.windowSlice(begin, end, maxBytes);
    const cut = Math.min(end, this.windowBegin);
    const stored = this.storage.entries(asIndex(begin), asIndex(cut), maxBytes);
    if (typeof stored === "string" || stored.length === 0) return undefined;
    if (cut === end || stored.length < cut - begin) return stored;
    let bytes = 0;
    for (const entry of stored) bytes += entryBytes(entry);
    if (bytes >= maxBytes) return stored;
    const rest = this.windowSlice(this.windowBegin, end, maxBytes - bytes);
    if (rest.length === 1 && bytes + entryBytes(rest[0] as Entry) > maxBytes) return stored;
    return stored.concat(rest);
  }

  private windowSlice(begin: number, end: number, maxBytes: number): Entry[] {
    const from = this.head + begin - this.windowBegin;
    const to = this.head + end - this.windowBegin;
    let bytes = entryBytes(this.window[from] as Entry);
    let at = from + 1;
    while (at < to) {
      bytes += entryBytes(this.window[at] as Entry);
      if (bytes > maxBytes) break;
      at++;
    }
    return this.window.slice(from, at);
  }

  /** Bytes of data in uncommitted entries [begin, end): those are always in the window. */
  payloadBytes(begin: number, end: number): number {
    let bytes = 0;
    for (let index = Math.max(begin, this.windowBegin); index < end; index++) bytes += this.at(index).data.length;
    return bytes;
  }

  hasUnwritten(): boolean {
    return this.handedOut <= this.last || this.hasUnwrittenSnapshot();
  }

  hasUnwrittenSnapshot(): boolean {
    return this.snapshot !== undefined && !this.isSnapshotHandedOut;
  }

  /** There are entries whose write is not known to be durable. */
  hasUnstable(): boolean {
    return this.unstable <= this.last;
  }

  pendingSnapshot(): SnapshotMeta | undefined {
    return this.snapshot;
  }

  /** Entries and snapshot to be written that were not handed out before. */
  handOut(): { entries: readonly Entry[]; snapshot: SnapshotMeta | undefined } {
    const entries = this.handedOut <= this.last ? this.window.slice(this.head + this.handedOut - this.windowBegin) : none;
    const snapshot = this.hasUnwrittenSnapshot() ? this.snapshot : undefined;
    this.handedOut = this.last + 1;
    this.isSnapshotHandedOut = this.snapshot !== undefined;
    return { entries, snapshot };
  }

  /**
   * The write that ended with this entry is durable. Ignored if the entry was replaced since:
   * then it is the later write that counts.
   */
  stableTo(index: number, term: number): void {
    if (index < this.unstable || index > this.last || this.at(index).term !== term) return;
    this.unstable = index + 1;
    this.handedOut = Math.max(this.handedOut, this.unstable);
    this.trim();
  }

  snapshotStableTo(index: number): boolean {
    if (this.snapshot?.index !== index) return false;
    this.snapshot = undefined;
    this.isSnapshotHandedOut = false;
    return true;
  }

  /** The log is what `snapshot` says and nothing else. */
  restore(snapshot: SnapshotMeta): void {
    this.committed = snapshot.index;
    this.last = snapshot.index;
    this.lastTerm_ = snapshot.term;
    this.window = [];
    this.head = 0;
    this.windowBytes = 0;
    this.windowBegin = snapshot.index + 1;
    this.unstable = this.windowBegin;
    this.handedOut = this.windowBegin;
    this.snapshot = snapshot;
    this.isSnapshotHandedOut = false;
  }

  private appliable(allowUnstable: boolean): number {
    return allowUnstable ? this.committed : Math.min(this.committed, this.unstable - 1);
  }

  hasCommitted(allowUnstable: boolean): boolean {
    return !this.isApplyPaused && !this.isApplyBlocked && this.snapshot === undefined && this.applying < this.appliable(allowUnstable);
  }

  /** Committed entries to be applied that were not handed out before. */
  takeCommitted(allowUnstable: boolean): readonly Entry[] {
    if (!this.hasCommitted(allowUnstable)) return none;
    const end = this.appliable(allowUnstable) + 1;
    const entries = this.slice(this.applying + 1, end, this.maxApplyBytes - this.applyingBytes);
    if (entries === undefined) {
      assert(this.applying + 1 >= this.firstIndex(), `Cannot apply entry ${this.applying + 1}: the log begins at ${this.firstIndex()}`);
      this.isApplyBlocked = true;
      return none;
    }
    let bytes = 0;
    for (const entry of entries) bytes += entryBytes(entry);
    const last = this.applying + entries.length;
    this.outstanding.push({ last, bytes });
    this.applying = asIndex(last);
    this.applyingBytes += bytes;
    this.isApplyPaused = this.applyingBytes >= this.maxApplyBytes || last + 1 < end;
    return entries;
  }

  unblock(): void {
    this.isApplyBlocked = false;
  }

  /** Everything up to `index` is applied. */
  appliedTo(index: number): void {
    assert(
      index >= this.applied && index <= this.committed,
      `Cannot count ${index} as applied: want ${this.applied} (applied) to ${this.committed} (committed)`,
    );
    this.applied = asIndex(index);
    this.applying = asIndex(Math.max(this.applying, index));
    let done = 0;
    for (const each of this.outstanding) {
      if (each.last > index) break;
      this.applyingBytes -= each.bytes;
      done++;
    }
    if (done === this.outstanding.length) this.outstanding = [];
    else if (done > 0) this.outstanding.splice(0, done);
    this.isApplyPaused = this.applyingBytes >= this.maxApplyBytes;
    this.trim();
  }

  /** Lets go of entries that are durable and applied, beyond the bound also of those only committed. Amortized O(1) an entry. */
  private trim(): void {
    const end = this.head + Math.min(this.unstable, this.last + 1) - this.windowBegin;
    const free = this.head + this.applied + 1 - this.windowBegin;
    const committed = this.head + this.committed + 1 - this.windowBegin;
    let at = this.head;
    while (at < end && (at < free || (at < committed && this.windowBytes > windowBytesMax))) {
      this.windowBytes -= entryBytes(this.window[at] as Entry);
      at++;
    }
    this.windowBegin += at - this.head;
    this.head = at;
    if (at === this.window.length) {
      this.window = [];
      this.head = 0;
    } else if (at > 1024 && at * 2 > this.window.length) {
      this.window = this.window.slice(at);
      this.head = 0;
    }
  }

  /** Whether an entry of kind `kind` is in (applied, committed]. Undefined if that can't be read now. */
  hasUnapplied(kind: number): boolean | undefined {
    let begin = this.applied + 1;
    while (begin <= this.committed) {
      const entries = this.slice(begin, this.committed + 1, this.maxApplyBytes);
      if (entries === undefined) return undefined;
      if (entries.some((entry) => entry.kind === kind)) return true;
      begin += entries.length;
    }
    return false;
  }

  /**
   * Index of the last but one uncommitted entry of this kind; 0 if there are not two.
   *
   * A change of membership is only appended when the one before is applied. So of two in a log the
   * earlier is committed, and a member that forgot so in a crash must not campaign with the
   * voters of before: they may be out of office.
   */
  lastButOne(kind: number): number {
    let found = 0;
    let before = 0;
    for (let begin = this.committed + 1; begin <= this.last; ) {
      const entries = this.slice(begin, this.last + 1, this.maxApplyBytes);
      assert(entries !== undefined, `Cannot open the log: entry ${begin} can't be read`);
      for (const entry of entries) {
        if (entry.kind !== kind) continue;
        before = found;
        found = entry.index;
      }
      begin += entries.length;
    }
    return before;
  }

  latestSnapshot(): SnapshotMeta | "later" {
    return this.snapshot ?? this.storage.snapshot();
  }
}

const none: readonly Entry[] = [];
