/**
 * What a log store knows of one shard without looking at its disk: where the shard's log begins
 * and ends, the terms of its records, and the hard state of its Raft group.
 *
 * Invariant: the runs follow the base without gaps, their terms rise, and
 * durable ≤ appended. What `inFlight` says becomes durable when the write under way lands.
 */
import { asIndex, assert, asTerm, type Index, type ShardId, type Term } from "#core/base";
import type { HardState, LogBase, LogEntry } from "./log-store.ts";

/** Records first … last, all of one term. */
interface Run {
  readonly first: number;
  last: number;
  readonly term: number;
}

export const noBase: LogBase = { index: asIndex(0), term: asTerm(0) };
export const noState: HardState = { term: asTerm(0), vote: 0, commit: asIndex(0) };

export class ShardLog {
  readonly shard: ShardId;
  base = noBase;
  appended: Index = asIndex(0);
  inFlight: Index = asIndex(0);
  durable: Index = asIndex(0);
  state = noState;
  isRemoved = false;
  /** What was durable when the replica was removed, until that is on the disk: the files tell of it as of the log so long. */
  leaving = 0;
  /** The batch that says so is being written. */
  isLeavingInFlight = false;
  /** The batch that gathers has something of the shard. */
  isTouched = false;
  /** Undefined: nobody takes what is appended. */
  isReplicated: boolean | undefined;
  taken: LogEntry[] = [];
  private runs: Run[] = [];

  constructor(shard: ShardId) {
    this.shard = shard;
  }

  /** A record joins the log, at its end or in place of all that it has from there on. */
  append(index: number, term: number): void {
    if (index !== this.appended + 1) this.cut(index);
    this.appended = index as Index;
    const run = this.runs.at(-1);
    if (run !== undefined && run.term === term) run.last = index;
    else {
      assert(term >= (run?.term ?? this.base.term), `terms of shard ${this.shard} rise: ${term} at index ${index} after ${run?.term}`);
      this.runs.push({ first: index, last: index, term });
    }
  }

  /** Records `first` … `last` of one term at once, as an index of a file has them. */
  appendRun(first: number, last: number, term: number): void {
    this.append(first, term);
    this.appended = last as Index;
    (this.runs.at(-1) as Run).last = last;
  }

  /** The log begins behind `index`, which it has, and keeps what is above. */
  compact(index: Index): void {
    assert(
      index > this.base.index && index <= this.durable,
      `the log of shard ${this.shard} begins behind a durable record: ${this.base.index + 1} to ${this.durable}, got ${index}`,
    );
    this.base = { index, term: this.term(index) as Term };
    this.runs = this.runs.filter((run) => run.last > index);
    const run = this.runs[0];
    if (run !== undefined && run.first <= index) this.runs[0] = { first: index + 1, last: run.last, term: run.term };
  }

  /** The log is empty, and begins behind `base`. */
  rebase(base: LogBase, isRemoved = false): void {
    this.base = base;
    this.isRemoved = isRemoved;
    this.leaving = isRemoved ? Math.max(this.leaving, this.durable) : 0;
    this.isLeavingInFlight = false;
    this.runs = [];
    this.taken = [];
    this.appended = base.index;
    this.inFlight = min(this.inFlight, base.index);
    this.durable = min(this.durable, base.index);
  }

  vote(state: HardState): void {
    const { term, vote } = this.state;
    assert(state.term >= term, `the term of shard ${this.shard} never goes back: it is ${term}, got ${state.term}`);
    assert(
      state.term > term || vote === 0 || state.vote === vote,
      `shard ${this.shard} votes once in term ${term}: for ${vote}, got ${state.vote}`,
    );
    this.state = { term: state.term, vote: state.vote, commit: state.commit };
  }

  term(index: number): Term | undefined {
    if (index === this.base.index) return this.base.term;
    if (index < this.base.index || index > this.appended) return undefined;
    let low = 0;
    let high = this.runs.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.runs[middle] as Run).first <= index) low = middle;
      else high = middle - 1;
    }
    return (this.runs[low] as Run).term as Term;
  }

  /** Everything that was found at opening is durable. */
  settle(): void {
    this.inFlight = this.appended;
    this.durable = this.appended;
    this.leaving = 0;
  }

  private cut(index: number): void {
    assert(
      index > this.base.index && index <= this.appended,
      `records of shard ${this.shard} follow each other: its log has ${this.base.index + 1} to ${this.appended}, got ${index}`,
    );
    while (this.runs.length > 0 && (this.runs.at(-1) as Run).first >= index) this.runs.pop();
    const run = this.runs.at(-1);
    if (run !== undefined) run.last = index - 1;
    if (this.taken.length > 0) this.taken = this.taken.filter((entry) => entry.index < index);
    this.inFlight = min(this.inFlight, index - 1);
    this.durable = min(this.durable, index - 1);
  }
}

const min = (a: Index, b: number) => (b < a ? (b as Index) : a);
