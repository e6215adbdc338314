/**
 * Makes a test environment go on: what workflow code and activities do, one thing after the other,
 * and the clock when nothing else is to be done.
 *
 * Invariant: workflow code has answered before anything else happens; of what activities did at
 * one time, the first by run and operation comes first.
 */
import { ActivityStuckError } from "./errors.ts";
import type { VirtualCore } from "./virtual-core.ts";
import type { VirtualWorker } from "./virtual-worker.ts";

/** So often an activity that is awake may give control back before others are told of. */
const turnsMax = 25;

export interface DriverOptions {
  readonly core: VirtualCore;
  readonly worker: VirtualWorker;
  /** Real milliseconds that a mock activity may take. */
  readonly activityMsMax: number;
  /** Called each time that workflow code has answered. */
  readonly onAnswered: () => void;
}

export class Driver {
  private readonly options: DriverOptions;
  /** The last of the work that was asked for; each waits for the one before. */
  private last: Promise<unknown> = Promise.resolve();

  constructor(options: DriverOptions) {
    this.options = options;
  }

  /** Goes on until nothing happens without the clock, or without the test's own code. */
  settle(): Promise<void> {
    return this.alone(() => this.goOn());
  }

  /** Goes on, moving the clock at most to `endMs`, until `isDone`. False where nothing is left that could change it. */
  async until(isDone: () => boolean, endMs = Number.POSITIVE_INFINITY): Promise<boolean> {
    // What the test asks for in the same breath comes first.
    await turn();
    for (;;) {
      await this.settle();
      if (isDone()) return true;
      const { worker } = this.options;
      if (worker.awake().length > 0) await this.reality(worker.change());
      else if (!(await this.alone(() => this.skip(endMs)))) {
        await turn();
        if (isDone()) return true;
        if (worker.isIdle && this.nextMs() > endMs) return false;
        if (this.nextMs() === Number.POSITIVE_INFINITY) return false;
      }
    }
  }

  /** Lets so much of virtual time pass. */
  async advance(ms: number): Promise<void> {
    const { core } = this.options;
    await this.settle();
    const endMs = core.nowMs + ms;
    await this.until(() => false, endMs);
    core.moveTo(endMs);
    await this.settle();
  }

  private nextMs(): number {
    const { core, worker } = this.options;
    return Math.min(core.nextMs(), worker.nextMs());
  }

  /** Moves the clock to the next thing that happens. False where there is none until `endMs`. */
  private async skip(endMs: number): Promise<boolean> {
    const { core, worker } = this.options;
    await this.goOn();
    if (worker.awake().length > 0) return true;
    const next = this.nextMs();
    if (next > endMs || next === Number.POSITIVE_INFINITY) return false;
    core.moveTo(next);
    worker.wake(core.nowMs);
    await this.goOn();
    return true;
  }

  private async goOn(): Promise<void> {
    const { core, worker, onAnswered } = this.options;
    for (let turns = 0; ; ) {
      core.pump();
      if (!worker.isAnswered) await worker.change();
      else if (worker.takeAnswers()) onAnswered();
      else if (worker.awake().length > 0 && turns++ < turnsMax) await turn();
      else if (worker.takeEnd()) turns = 0;
      else return;
    }
  }

  private alone<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.last.then(work);
    this.last = mine.catch(() => {});
    return mine;
  }

  /** An activity takes real time: no virtual time passes meanwhile. */
  private async reality(change: Promise<void>): Promise<void> {
    const { worker, activityMsMax } = this.options;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const tooLong = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const names = [...new Set(worker.awake())].map((name) => JSON.stringify(name)).join(", ");
        const advice = "a mock activity takes virtual time by `await context.sleep(…)`, and hangs by `await context.hang()`";
        reject(new ActivityStuckError(`Activity ${names} has been running for ${activityMsMax} ms of real time: ${advice}`));
      }, activityMsMax);
    });
    try {
      await Promise.race([change, tooLong]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Everything that goes on by microtasks has gone on. */
function turn(): Promise<void> {
  return new Promise((done) => setImmediate(done));
}
