/**
 * Two shards that are restored to different moments: whatever was sent is taken, refused or said to be
 * lost, and every wait is answered.
 */
import { expect, test } from "bun:test";
import type { Partition } from "#core/base";
import { decodeBody, isClosed, isLive, settledThrough } from "#core/run";
import type { LiveRun } from "#core/shard";
import { decodeEvent, decodeRecord, EventKind, fromBytes } from "#proto";
import { World } from "./messages-fixture.ts";

const text = new TextDecoder();

/** Signals by what they carry, which is another thing in each. */
interface Signals {
  /** From whom to whom, in the sender's order. */
  readonly sent: Map<string, string>;
  readonly taken: Map<string, string>;
  readonly refused: Set<string>;
}

function signalsOf(world: World): Signals {
  const found: Signals = { sent: new Map(), taken: new Map(), refused: new Set() };
  const texts = new Map<string, string>();
  for (const body of world.sides.flatMap(({ log }) => log.records)) {
    const record = fromBytes(decodeRecord, body);
    for (const { sender, partition, number, refusal } of record.taken)
      if (refusal !== "") found.refused.add(`${sender} ${partition} ${number}`);
    for (const bytes of record.event) {
      const { partition, kind, payload } = fromBytes(decodeEvent, bytes);
      const event = decodeBody(kind, payload);
      if (event?.kind === EventKind.signalSent) {
        const what = text.decode(event.body.payload?.data);
        found.sent.set(what, `${partition} run/${event.body.to}`);
        texts.set(`${partition} run/${event.body.to} ${event.body.number}`, what);
      } else if (event?.kind === EventKind.signalReceived && event.body.number > 0) {
        const what = text.decode(event.body.payload?.data);
        expect([what, found.taken.has(what)]).toEqual([what, false]);
        found.taken.set(what, `${event.body.from} ${partition}`);
      }
    }
  }
  for (const key of [...found.refused]) found.refused.add(texts.get(key) ?? key);
  return found;
}

/** Goes on, and looks at what became of everything. Returns how many signals nobody has. */
function settleAndCheck(world: World): number {
  for (let i = 0; i < 1500; i++) world.once();
  world.heal();
  let runs: LiveRun[] = [];
  const lastTaken = (from: Partition, to: Partition) => {
    const live = world.sides.flatMap(({ machine }) => [...machine.liveRuns()]).find(({ partition }) => partition === to);
    return live?.run.inbox.get(from)?.taken ?? 0;
  };
  runs = world.checkStates(lastTaken);
  for (const { run, partition } of runs)
    for (const o of isLive(run) ? run.pending.values() : []) {
      if (o.kind !== EventKind.resultAwaited) continue;
      const other = runs.find((each) => each.run.run === o.to);
      const isHeard = other?.run.awaiters.has(`${partition}#${run.generation}.${o.op}`);
      expect([run.run, o.to, o.op, isHeard, other === undefined || isClosed(other.run)]).toEqual([run.run, o.to, o.op, true, false]);
    }
  const { sent, taken, refused } = signalsOf(world);
  const order = [...sent.keys()];
  const lastOf = new Map<string, number>();
  for (const [what, pair] of taken) {
    const at = order.indexOf(what);
    // What the sender does not know to have sent has no place in its order.
    if (at < 0) continue;
    expect([what, sent.get(what)]).toEqual([what, pair]);
    expect([what, at > (lastOf.get(pair) ?? -1)]).toEqual([what, true]);
    lastOf.set(pair, at);
  }
  return order.filter((what) => !taken.has(what) && !refused.has(what)).length;
}

function restoredWorld(seed: number, keyed?: number): { readonly world: World; readonly lost: number } {
  const world = new World(
    seed,
    { lost: 100, twice: 100, ghost: 30, crash: 2, longWait: 0, ...(keyed === undefined ? {} : { keyed }) },
    [5, 5],
  );
  for (let i = 0; i < 2000; i++) world.once();
  const ends = world.sides.map(({ committed }) => committed - world.prng.below(seed % 3 === 0 ? committed : 150)) as [number, number];
  world.restore(ends);
  return { world, lost: settleAndCheck(world) };
}

test("signals that the receiver lacks are taken again or said to be lost, waits are asked again, and what is new is no repetition", () => {
  const total = { given: 0, lost: 0, asked: 0, refused: 0 };
  for (let seed = 1; seed <= 16; seed++) {
    const { world, lost } = restoredWorld(seed);
    expect([seed, lost]).toEqual([seed, world.reunited.lost]);
    for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += world.reunited[key];
  }
  for (const [what, count] of Object.entries(total)) expect([what, count > 0]).toEqual([what, true]);
}, 60_000);

test("restored once more, before what the first restore put right is anywhere but at one of them", () => {
  for (let seed = 100; seed < 108; seed++) {
    const { world } = restoredWorld(seed);
    const [a, b] = world.sides.map(({ log }) => log.lastIndex) as [number, number];
    const lost = world.reunited.lost;
    world.restore(seed % 2 === 0 ? [a, b - world.prng.below(b >> 1)] : [a - world.prng.below(a >> 1), b]);
    expect(settleAndCheck(world)).toBeLessThanOrEqual(world.reunited.lost);
    expect(world.reunited.lost).toBeGreaterThanOrEqual(lost);
  }
}, 60_000);

test("shards of one moment have nothing to put right", () => {
  const world = new World(7, { lost: 100, twice: 100, ghost: 30, crash: 2, longWait: 0 }, [5, 5]);
  for (let i = 0; i < 2000; i++) world.once();
  const [a, b] = world.sides;
  world.restore([a.committed, b.committed]);
  expect(world.reunited).toEqual({ given: 0, lost: 0, asked: 0, refused: 0 });
  expect(settleAndCheck(world)).toBe(0);
  for (const { run } of [...a.machine.liveRuns()]) for (const [to] of run.settledTo) expect(settledThrough(run, to)).toBeGreaterThan(0);
}, 60_000);

test("idempotency keys that know more or less than the operations that claim them: none is held for ever, and every claim is answered", () => {
  let asked = 0;
  for (let seed = 200; seed < 230; seed++) asked += restoredWorld(seed, 500).world.reunited.asked;
  expect(asked).toBeGreaterThan(10);
}, 60_000);

test("claims of shards of one moment have nothing to put right", () => {
  const world = new World(9, { lost: 100, twice: 100, ghost: 30, crash: 2, longWait: 0, keyed: 500 }, [5, 5]);
  for (let i = 0; i < 2000; i++) world.once();
  world.restore([world.sides[0].committed, world.sides[1].committed]);
  expect(world.reunited).toEqual({ given: 0, lost: 0, asked: 0, refused: 0 });
  world.heal();
  world.check();
}, 60_000);

/** Keys whose activities were executed, each as often as it was. */
function executedKeys(records: readonly Uint8Array[]): string[] {
  const keys = new Map<string, string>();
  const generations = new Map<string, number>();
  return records
    .flatMap((body) => fromBytes(decodeRecord, body).event)
    .flatMap((bytes) => {
      const { partition, kind, payload } = fromBytes(decodeEvent, bytes);
      const event = decodeBody(kind, payload);
      const of = (op: number) => `${partition} ${generations.get(partition)} ${op}`;
      if (event?.kind === EventKind.runStarted) generations.set(partition, event.body.generation);
      if (event?.kind === EventKind.activityScheduled) keys.set(of(event.body.op), event.body.claim?.to ?? "");
      return event?.kind === EventKind.activityCompleted && event.body.told > 0 ? [keys.get(of(event.body.op)) ?? ""] : [];
    });
}

test("what an operation came to is known to its key again, where that one was restored to a moment before", () => {
  const total = { known: 0, again: 0 };
  for (let seed = 300; seed < 330; seed++) {
    const world = new World(seed, { lost: 100, twice: 100, ghost: 30, crash: 2, longWait: 0, keyed: 500 }, [5, 1]);
    for (let i = 0; i < 1500; i++) world.once();
    const [runs, keys] = world.sides;
    const known = new Set(executedKeys(runs.log.records.slice(0, runs.committed)));
    world.restore([runs.committed, keys.committed - world.prng.below(Math.min(keys.committed, 200))]);
    world.heal();
    const executed = executedKeys(world.sides.flatMap(({ log }) => log.records));
    total.known += known.size;
    total.again += executed.filter((key) => known.has(key)).length - known.size;
  }
  expect([total.known > 50, total.again]).toEqual([true, 0]);
}, 60_000);
