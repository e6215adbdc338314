import { expect, test } from "bun:test";
import { Gate, type Waiter } from "./gate.ts";
import { VirtualTiming } from "./virtual-timing-fixture.ts";

class Caller implements Waiter {
  tries = 0;
  isExpired = false;
  readonly deadlineMs: number;
  private readonly onRetry: (caller: Caller) => void;

  constructor(deadlineMs: number, onRetry: (caller: Caller) => void) {
    this.deadlineMs = deadlineMs;
    this.onRetry = onRetry;
  }

  retry(): void {
    this.tries++;
    this.onRetry(this);
  }

  expire(): void {
    this.isExpired = true;
  }
}

test("while the shard refuses one caller at a time tries, every 5 to 20 ms; once it takes one, all follow soon", () => {
  const timing = new VirtualTiming();
  const gate = new Gate(timing);
  let refuses = true;
  const callers = Array.from({ length: 5000 }, () => new Caller(100_000, (caller) => void (refuses && gate.add(caller))));
  for (const caller of callers) gate.add(caller);
  timing.pass(2000);
  const tries = callers.reduce((sum, { tries: each }) => sum + each, 0);
  expect(tries).toBeGreaterThanOrEqual(100);
  expect(tries).toBeLessThanOrEqual(110);
  refuses = false;
  timing.pass(80);
  expect(gate.size).toBe(0);
});

test("a change lets all try at once", () => {
  const gate = new Gate(new VirtualTiming());
  const callers = Array.from({ length: 10 }, () => new Caller(100_000, () => {}));
  for (const caller of callers) gate.add(caller);
  gate.open();
  expect(callers.map(({ tries }) => tries)).toEqual(Array(10).fill(1));
});

test("each caller that is taken brings others at once", () => {
  const timing = new VirtualTiming();
  const gate = new Gate(timing);
  let refuses = true;
  let taken = 0;
  const callers = Array.from(
    { length: 1000 },
    () =>
      new Caller(100_000, (caller) => {
        if (refuses) return gate.add(caller);
        taken++;
        timing.after(1, () => gate.taken());
      }),
  );
  for (const caller of callers) gate.add(caller);
  timing.pass(500);
  refuses = false;
  while (taken === 0) timing.pass(1);
  expect(taken).toBe(1);
  timing.pass(5);
  expect(taken).toBe(1000);
});

test("each caller waits until its own deadline, and closing ends all waiting", () => {
  const timing = new VirtualTiming();
  const gate = new Gate(timing);
  const again = (caller: Caller) => gate.add(caller);
  const [brief, patient] = [new Caller(timing.monotonicMs() + 100, again), new Caller(timing.monotonicMs() + 1000, again)];
  gate.add(brief);
  gate.add(patient);
  timing.pass(90);
  expect([brief.isExpired, patient.isExpired]).toEqual([false, false]);
  timing.pass(40);
  expect([brief.isExpired, patient.isExpired]).toEqual([true, false]);
  gate.close();
  expect([patient.isExpired, gate.size]).toEqual([true, 0]);
});

test("an outage begins anew after a pause without refusals", () => {
  const timing = new VirtualTiming();
  const gate = new Gate(timing);
  const caller = new Caller(1e9, () => {});
  gate.add(caller);
  const first = gate.sinceMs;
  timing.pass(500);
  gate.add(caller);
  expect(gate.sinceMs).toBe(first);
  timing.pass(5000);
  gate.add(caller);
  expect(gate.sinceMs).toBe(first + 5500);
});
