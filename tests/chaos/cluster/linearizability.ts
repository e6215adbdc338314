/**
 * Whether a history of concurrent operations is one that a single copy could have given, one
 * operation after another, each at some moment between its call and its return.
 *
 * The search of Wing, Gong and Lowe with a memory of the configurations it was in. An operation
 * whose outcome is unknown has no return: it may take effect at any later moment, or never.
 */

export interface Operation<Call> {
  readonly call: Call;
  readonly beginMs: number;
  /** Undefined = nobody knows whether, and when, it took effect. */
  readonly endMs: number | undefined;
}

/** What calls do to a state. */
export interface Model<Call> {
  /** State after an operation gave what it gave; undefined = it could not have given that in `state`. */
  step(state: string, operation: Operation<Call>): string | undefined;
  /** It changes nothing, in no state. */
  isRead(call: Call): boolean;
}

export type Verdict = "ok" | "illegal" | "unknown";

/** A call or a return in the list of what is not yet put in order. */
interface Moment {
  readonly operation: number;
  readonly atMs: number;
  previous: Moment | undefined;
  next: Moment | undefined;
  /** The return of a call; undefined = it is a return. */
  readonly end: Moment | undefined;
}

const stepsFirst = 2_000;

/** Steps after which the search gives up. */
export const stepsMax = 5_000_000;

/** Each history of independent keys by itself: they are linearizable together where each one is. */
export function checkAll<Call>(histories: Iterable<readonly Operation<Call>[]>, model: Model<Call>, initial: string): Verdict {
  const all = [...histories];
  // A short search first: one bad key decides, however hard the others are.
  for (let steps = stepsFirst; ; steps = Math.min(steps * 10, stepsMax)) {
    const verdicts = all.map((operations) => check(operations, model, initial, steps));
    if (verdicts.includes("illegal")) return "illegal";
    if (!verdicts.includes("unknown")) return "ok";
    if (steps === stepsMax) return "unknown";
  }
}

export function check<Call>(operations: readonly Operation<Call>[], model: Model<Call>, initial: string, steps = stepsMax): Verdict {
  return new Search(operations, model, initial).run(steps);
}

interface Choice {
  readonly moment: Moment;
  /** State before it. */
  readonly state: string;
  /** Nothing else has to be tried in its place. */
  readonly isForced: boolean;
}

class Search<Call> {
  private readonly operations: readonly Operation<Call>[];
  private readonly model: Model<Call>;
  private readonly head: Moment;
  private readonly taken: Taken;
  private readonly seen = new Set<string>();
  private readonly path: Choice[] = [];
  private state: string;

  constructor(operations: readonly Operation<Call>[], model: Model<Call>, initial: string) {
    this.operations = operations;
    this.model = model;
    this.head = momentsOf(operations);
    this.taken = new Taken(operations.length);
    this.state = initial;
  }

  run(steps: number): Verdict {
    let at = this.afterReads();
    for (let left = steps; this.head.next !== undefined; left--) {
      if (left === 0) return "unknown";
      if (at?.end === undefined) {
        // A return, or the end: something before it was put in a wrong place.
        const last = this.undo();
        if (last === undefined) return "illegal";
        at = last.next;
      } else at = this.tryCall(at) ? this.afterReads() : at.next;
    }
    return "ok";
  }

  private stepOf(moment: Moment): string | undefined {
    return this.model.step(this.state, this.operations[moment.operation] as Operation<Call>);
  }

  /** Puts the call next in order where it can be, and that was not tried before. */
  private tryCall(call: Moment): boolean {
    const after = this.stepOf(call);
    if (after === undefined) return false;
    this.taken.flip(call.operation);
    const configuration = `${this.taken.text()}|${after}`;
    if (this.seen.has(configuration)) {
      this.taken.flip(call.operation);
      return false;
    }
    this.seen.add(configuration);
    this.path.push({ moment: call, state: this.state, isForced: false });
    this.state = after;
    lift(call);
    return true;
  }

  /** Takes every read that may come next: whatever order there is, there is one that begins with it. Returns the first moment that is left. */
  private afterReads(): Moment | undefined {
    for (let at = this.head.next; at?.end !== undefined; ) {
      const { next } = at;
      const { call } = this.operations[at.operation] as Operation<Call>;
      if (this.model.isRead(call) && this.stepOf(at) !== undefined) {
        this.taken.flip(at.operation);
        this.path.push({ moment: at, state: this.state, isForced: true });
        lift(at);
        // Its return may have been in the way.
        at = this.head.next;
      } else at = next;
    }
    return this.head.next;
  }

  /** Takes back the last call that was chosen, and the reads behind it. */
  private undo(): Moment | undefined {
    for (let last = this.path.pop(); last !== undefined; last = this.path.pop()) {
      this.state = last.state;
      this.taken.flip(last.moment.operation);
      putBack(last.moment);
      if (!last.isForced) return last.moment;
    }
    return undefined;
  }
}

/** Operations that are put in order, as bits. */
class Taken {
  private readonly words: Uint32Array;

  constructor(count: number) {
    this.words = new Uint32Array((count + 31) >> 5);
  }

  flip(operation: number): void {
    (this.words[operation >> 5] as number) ^= 1 << (operation & 31);
  }

  text(): string {
    return this.words.join(",");
  }
}

/** All calls and returns in the order of time, behind a head. A call at the time of a return comes first: the two overlap. */
function momentsOf(operations: readonly Operation<unknown>[]): Moment {
  const moments = operations.flatMap(({ beginMs, endMs }, operation) => {
    const end: Moment = { operation, atMs: endMs ?? Number.POSITIVE_INFINITY, previous: undefined, next: undefined, end: undefined };
    return [{ operation, atMs: beginMs, previous: undefined, next: undefined, end } satisfies Moment, end];
  });
  const isReturn = ({ end }: Moment) => (end === undefined ? 1 : 0);
  moments.sort((a, b) => (a.atMs === b.atMs ? isReturn(a) - isReturn(b) : a.atMs - b.atMs));
  const head: Moment = { operation: -1, atMs: -1, previous: undefined, next: undefined, end: undefined };
  let last = head;
  for (const moment of moments) {
    last.next = moment;
    moment.previous = last;
    last = moment;
  }
  return head;
}

function unlink({ previous, next }: Moment): void {
  (previous as Moment).next = next;
  if (next !== undefined) next.previous = previous;
}

function relink(moment: Moment): void {
  (moment.previous as Moment).next = moment;
  if (moment.next !== undefined) moment.next.previous = moment;
}

function lift(call: Moment): void {
  unlink(call);
  unlink(call.end as Moment);
}

function putBack(call: Moment): void {
  relink(call.end as Moment);
  relink(call);
}
