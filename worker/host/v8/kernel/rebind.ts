/** What a workflow has in another form: clocks, randomness, timers, weak references, console. */
import { DeterminismError } from "#sdk/runtime";
import { checkDuration } from "#sdk/runtime/checks";
import { record } from "../protocol.ts";
import { toFailure } from "./failure.ts";
import { makeConsole } from "./log.ts";
import { actingRun, startTimer, withdraw } from "./operations.ts";
import { fillRandom, nextRandom, nextUuid } from "./random.ts";
import type { Run } from "./run.ts";
import { changingRun, readingRun } from "./run.ts";

export function rebind(realm: typeof globalThis): void {
  const define = (name: string, value: unknown) => {
    Object.defineProperty(realm, name, { value, writable: true, configurable: true, enumerable: false });
  };
  define("Date", makeDate(Date));
  define("performance", makePerformance());
  define("crypto", makeCrypto());
  define("console", makeConsole());
  define("WeakRef", makeWeakRef());
  for (const [name, value] of Object.entries(makeTimers())) define(name, value);
  Math.random = function random() {
    return nextRandom(changingRun("Math.random()"));
  };
}

function makeDate(Real: DateConstructor): DateConstructor {
  function Date(this: unknown, ...fields: unknown[]): unknown {
    if (new.target === undefined) return new Real(readingRun("Date()").nowMs).toString();
    return Reflect.construct(Real, fields.length > 0 ? fields : [readingRun("new Date()").nowMs], new.target);
  }
  const now = () => readingRun("Date.now()").nowMs;
  const hidden = (value: unknown) => ({ value, writable: true, configurable: true });
  Object.defineProperties(Date, {
    now: hidden(now),
    UTC: hidden(Real.UTC),
    parse: hidden(Real.parse),
    length: { value: 7, configurable: true },
    // The build may have renamed the function.
    name: { value: "Date", configurable: true },
    prototype: { value: Real.prototype, writable: false },
  });
  Object.defineProperty(Real.prototype, "constructor", hidden(Date));
  return Date as unknown as DateConstructor;
}

function makePerformance(): object {
  return {
    /** Logical milliseconds since the start of the run. */
    now: () => elapsedMs(readingRun("performance.now()")),
    get timeOrigin() {
      return readingRun("performance.timeOrigin").startedMs;
    },
  };
}

function elapsedMs(run: Run): number {
  return run.nowMs - run.startedMs;
}

function makeCrypto(): object {
  return {
    randomUUID: () => nextUuid(changingRun("crypto.randomUUID()")),
    getRandomValues<T extends ArrayBufferView>(view: T): T {
      if (!ArrayBuffer.isView(view)) throw new TypeError("crypto.getRandomValues() takes a typed array");
      if (view.byteLength > 65536) throw new RangeError(`crypto.getRandomValues() fills at most 65536 bytes, got ${view.byteLength}`);
      fillRandom(changingRun("crypto.getRandomValues()"), new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
      return view;
    },
    get subtle(): never {
      throw new DeterminismError("crypto.subtle does not exist in a workflow: keys and secrets belong into an activity");
    },
  };
}

/** Never lets go: when memory is reclaimed must not be observable. */
function makeWeakRef(): unknown {
  return class WeakRef {
    readonly #target: unknown;
    constructor(target: unknown) {
      this.#target = target;
    }
    deref(): unknown {
      return this.#target;
    }
    get [Symbol.toStringTag](): string {
      return "WeakRef";
    }
  };
}

type Callback = (...args: unknown[]) => unknown;

/** `setTimeout` and its kin over durable timers: each firing is an operation of the run. */
function makeTimers(): Record<string, unknown> {
  const start = (what: string, again: boolean) => {
    return (callback: Callback, ms: unknown = 0, ...args: unknown[]): number => {
      const run = actingRun(`${what}()`);
      if (typeof callback !== "function") throw new TypeError(`${what}() takes a function`);
      const wait = Math.max(again ? 1 : 0, checkDuration(`Delay of ${what}()`, Number(ms) || 0));
      run.handleCount += 1;
      arm(run, run.handleCount, wait, again, () => callback(...args));
      return run.handleCount;
    };
  };
  const clear = (handle: unknown): void => {
    const run = actingRun("clearTimeout()");
    const op = run.handles.get(Number(handle));
    if (op === undefined) return;
    run.handles.delete(Number(handle));
    withdraw(run, op);
  };
  return {
    setTimeout: start("setTimeout", false),
    setInterval: start("setInterval", true),
    clearTimeout: clear,
    clearInterval: clear,
    queueMicrotask(callback: () => unknown): void {
      const run = changingRun("queueMicrotask()");
      if (typeof callback !== "function") throw new TypeError("queueMicrotask() takes a function");
      Promise.resolve().then(() => guarded(run, callback));
    },
  };
}

function arm(run: Run, handle: number, ms: number, again: boolean, callback: () => unknown): void {
  run.handles.set(handle, run.ops + 1);
  startTimer(run, ms, "callback").then(() => {
    if (again) arm(run, handle, ms, again, callback);
    else run.handles.delete(handle);
    guarded(run, callback);
  });
}

/** An error in a callback has no promise to reject: it fails the run, as it would end a process. */
function guarded(run: Run, callback: () => unknown): void {
  try {
    callback();
  } catch (error) {
    if (run.ended) return;
    run.ended = true;
    run.emit(record.fail, JSON.stringify(toFailure(error)));
  }
}
