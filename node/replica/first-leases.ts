/**
 * Leases of the first terms of children that splits give birth to, asked for while the children are born.
 *
 * A lease is for one node in one term, so one that comes before its election changes nothing: it
 * is used by whoever is elected in that term, and by nobody where that is another node.
 */
import type { Rejection, ShardId, Term } from "#core/base";
import type { Timing } from "../timing.ts";
import type { AskedLease, Lease } from "./surroundings.ts";

type Done = (result: Lease | Rejection) => void;
type Ask = (asked: AskedLease, isAhead: boolean, done: Done) => void;

/** A child that is not elected by then asks as any other shard does. */
const keptMs = 2000;

interface Ahead {
  readonly term: Term;
  answer: Lease | Rejection | undefined;
  /** Gets the answer when it comes. */
  wanted: Done | undefined;
}

export class FirstLeases {
  private readonly timing: Timing;
  private readonly demand: Ask;
  private readonly ahead = new Map<ShardId, Ahead>();

  constructor(timing: Timing, ask: Ask) {
    this.timing = timing;
    this.demand = ask;
  }

  /** Asks for the lease of a term that this node is about to stand for. */
  ask(asked: AskedLease): void {
    const { shard, term } = asked;
    const ahead: Ahead = { term, answer: undefined, wanted: undefined };
    this.ahead.set(shard, ahead);
    this.timing.after(keptMs, () => {
      if (this.ahead.get(shard) === ahead) this.ahead.delete(shard);
    });
    this.demand(asked, true, (result) => {
      ahead.answer = result;
      ahead.wanted?.(result);
    });
  }

  /** The lease for a term in which this node was elected. */
  take(asked: AskedLease, done: Done): void {
    const ahead = this.ahead.get(asked.shard);
    this.ahead.delete(asked.shard);
    if (ahead === undefined || ahead.term !== asked.term) return this.demand(asked, false, done);
    const settle = (result: Lease | Rejection): void => {
      if ("reject" in result) this.demand(asked, false, done);
      else done(result);
    };
    if (ahead.answer !== undefined) settle(ahead.answer);
    else ahead.wanted = settle;
  }
}
