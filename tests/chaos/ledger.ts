/**
 * What a client was promised: each acknowledged start, signal and result, written down as it came.
 *
 * `drive` makes promises until the server goes away, `finish` sends again what was never
 * acknowledged and brings every run to its result.
 */
import { type HopClient, HopError } from "#sdk/client";

export interface Plan {
  /** Instance names begin with it. */
  readonly prefix: string;
  readonly runs: number;
  /** Signals that each run takes; its result is their sum, 1 + 2 + … + signals. */
  readonly signals: number;
  /** Bytes that each start carries besides. */
  readonly fillerBytes?: number;
}

export interface Promised {
  /** Generation of the acknowledged start; undefined = not acknowledged. */
  generation: number | undefined;
  /** Values of acknowledged signals. */
  readonly signals: Set<number>;
  /** The acknowledged result. */
  result: number | undefined;
}

export class Ledger {
  readonly plan: Plan;
  readonly runs = new Map<string, Promised>();
  /** Requests that were refused for want of space. */
  refused = 0;

  constructor(plan: Plan) {
    this.plan = plan;
    for (let i = 0; i < plan.runs; i++)
      this.runs.set(`${plan.prefix}-${i}`, { generation: undefined, signals: new Set(), result: undefined });
  }

  get acks(): number {
    let count = 0;
    for (const { generation, signals, result } of this.runs.values()) {
      count += signals.size + (generation === undefined ? 0 : 1) + (result === undefined ? 0 : 1);
    }
    return count;
  }

  get sum(): number {
    return (this.plan.signals * (this.plan.signals + 1)) / 2;
  }

  get input(): { count: number; filler?: string } {
    const { signals, fillerBytes = 0 } = this.plan;
    return fillerBytes === 0 ? { count: signals } : { count: signals, filler: "x".repeat(fillerBytes) };
  }
}

const isNoSpace = (error: unknown) => error instanceof HopError && error.reason === "NO_SPACE";

/** Asks again while the answer is that there is no space. */
async function whileFull<T>(ledger: Ledger, ask: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      ledger.refused++;
      await Bun.sleep(20);
    }
  }
}

async function driveRun(client: HopClient, ledger: Ledger, instance: string): Promise<void> {
  const promised = ledger.runs.get(instance) as Promised;
  const handle = client.handle<number>({ instance });
  if (promised.generation === undefined) {
    const options = { instance, idempotencyKey: `key-${instance}` };
    promised.generation = (await whileFull(ledger, () => client.start("tally", ledger.input, options))).generation;
  }
  const values = Array.from({ length: ledger.plan.signals }, (_, i) => i + 1).filter((value) => !promised.signals.has(value));
  for (const value of values) {
    await whileFull(ledger, () => handle.signal("add", value, { id: `signal-${value}` }));
    promised.signals.add(value);
  }
  const result = await handle.result();
  if (promised.result !== undefined && promised.result !== result)
    throw new Error(`${instance} gave ${promised.result}, and now gives ${result}`);
  promised.result = result;
}

/** Makes promises on all runs at once; returns how many runs came to their end. Never rejects for a server that went away. */
export async function drive(client: HopClient, ledger: Ledger): Promise<number> {
  const ends = await Promise.allSettled([...ledger.runs.keys()].map((instance) => driveRun(client, ledger, instance)));
  for (const end of ends) {
    if (end.status === "rejected" && !(end.reason instanceof HopError)) throw end.reason;
  }
  return ends.filter(({ status }) => status === "fulfilled").length;
}

/** Brings every run to its result, which must be the sum of its signals, each counted once. */
export async function finish(client: HopClient, ledger: Ledger): Promise<void> {
  await Promise.all([...ledger.runs.keys()].map((instance) => driveRun(client, ledger, instance)));
  for (const [instance, { result }] of ledger.runs) {
    if (result !== ledger.sum) throw new Error(`${instance} came to ${result}, want ${ledger.sum}: a signal was lost or counted twice`);
  }
}
