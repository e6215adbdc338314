/**
 * What must hold of every program: its histories replay, and are the same to the byte where Core
 * ends behind any record, where the worker loses its runs behind any answer, and where both happen
 * several times. Of runs that tell each other things, the order of telling is open: those end and
 * replay.
 */
import { Prng } from "#core/base";
import { type Fault, MethodFailedError, type MockContext, RunStuckError, TestEnvironment, type TestRun } from "#sdk/testing";
import { type Act, type Program, programOf } from "./program.ts";

type Workflows = typeof import("./program-fixture.ts");
type Environment = TestEnvironment<Workflows>;

/** A program does not do what it must. */
export class ProgramError extends Error {
  override name = "ProgramError";
}

export interface ProgramReport {
  readonly events: number;
  readonly crashes: number;
}

export function programEnvironment(): Promise<Environment> {
  return TestEnvironment.create<Workflows>({ workflows: new URL("./program-fixture.ts", import.meta.url), activities: { act } });
}

/** Together: a task that is lost more often is given up. */
const crashesMax = 3;

interface Input {
  readonly takesMs: number;
  readonly fails: number;
  readonly seen: string;
}

async function act({ takesMs, fails, seen }: Input, { sleep, attempt }: MockContext): Promise<number> {
  if (takesMs > 0) await sleep(takesMs);
  if (attempt <= fails) throw new Error(`attempt ${attempt} fails`);
  return seen.length;
}

interface Seen {
  readonly env: Environment;
  /** Of each run: how it ended, and its history's hash. */
  readonly ends: readonly string[];
}

/**
 * Core ends behind every event, and the worker loses its runs behind every answer; where it is
 * thorough, also at each of these places alone, before anything that rests on the event has left. Throws `ProgramError` with the program and a command
 * that shows it again.
 */
export async function checkProgram(base: Environment, seed: number, isThorough: boolean): Promise<ProgramReport> {
  const program = programOf(seed);
  try {
    return await check(base, program, isThorough);
  } catch (error) {
    const what = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    throw new ProgramError(`Program ${seed}: ${what}\n  npm run sim -- --programs 1 --from ${seed}\n${JSON.stringify(program)}`, {
      cause: error,
    });
  }
}

async function check(base: Environment, program: Program, isThorough: boolean): Promise<ProgramReport> {
  const begun = base.fresh().progress.records;
  const live = await execute(base, program, {});
  let events = 0;
  for (const run of live.env.runs) {
    const history = run.history();
    events += history.events.length;
    await live.env.replay(history);
  }
  const { records, answers } = live.env.progress;
  await compare(base, live, program, { records: "all" });
  await compare(base, live, program, { answers: "all" });
  let crashes = records - begun + answers;
  if (isThorough) crashes += await eachAlone(base, live, program, begun);
  return { events, crashes };
}

/** A crash at each place by itself, and at some places together. */
async function eachAlone(base: Environment, live: Seen, program: Program, begun: number): Promise<number> {
  const { records, answers } = live.env.progress;
  for (let record = begun + 1; record <= records; record++) await compare(base, live, program, { records: [record] });
  for (let answer = 1; answer <= answers; answer++) await compare(base, live, program, { answers: [answer] });
  const prng = new Prng(program.seed + 0x5eed);
  const some = (count: number) => Array.from({ length: crashesMax }, () => 1 + prng.below(count));
  await compare(base, live, program, { records: some(records + crashesMax), answers: some(answers) });
  await compare(base, live, program, { records: "all", answers: "all" });
  return records - begun + answers + 2 * crashesMax;
}

async function compare(base: Environment, live: Seen, program: Program, fault: Fault): Promise<void> {
  const crashed = await execute(base, program, fault);
  // Which message of another run is taken first, a crash may change: these runs end, and replay.
  if (live.env.runs.length > 1) {
    for (const run of crashed.env.runs) await crashed.env.replay(run.history());
    return;
  }
  for (const [i, end] of live.ends.entries()) {
    if (crashed.ends[i] === end) continue;
    const [was, is] = [live, crashed].map(({ env }) => env.runs[i]?.history().lines() ?? []);
    const at = was?.findIndex((line, seq) => line !== is?.[seq]) ?? 0;
    const place = at < 0 ? "in times or payloads" : `from event ${was?.[at]}, which is ${is?.[at] ?? "missing"}`;
    throw new ProgramError(
      `with ${JSON.stringify(fault)}, run ${live.env.runs[i]?.id} is ${crashed.ends[i]}, want ${end}; it differs ${place}`,
    );
  }
}

async function execute(base: Environment, program: Program, fault: Fault): Promise<Seen> {
  const env = base.fresh(fault);
  const runs = new Map<string, TestRun>();
  for (const [name, code] of Object.entries(program.runs)) runs.set(name, await env.start("program", code, { instance: name }));
  const begunMs = env.now;
  for (const { atMs, ...act } of program.acts) {
    await env.advance(Math.max(0, begunMs + atMs - env.now));
    await apply(runs.get(act.run) as TestRun, act);
  }
  const ends: string[] = [];
  for (const run of runs.values()) ends.push(await endOf(run));
  // Those that had ended before may have been told something since.
  return { env, ends: ends.map((end, i) => `${end} ${env.runs[i]?.history().hash}`) };
}

/** What comes too late is refused, and a call may never be answered. */
async function apply(run: TestRun, { kind, name }: Omit<Act, "atMs">): Promise<void> {
  try {
    if (kind === "signal") await run.signal(name, name);
    else if (kind === "call") await run.call("ask", name);
    else if (kind === "pause") await run.pause("for a while");
    else if (kind === "cancel") await run.cancel("enough");
    else await run.terminate("enough");
  } catch (error) {
    const isExpected = error instanceof RunStuckError || error instanceof MethodFailedError;
    if (!isExpected && (error as { reason?: string }).reason !== "RUN_CLOSED") throw error;
  }
}

/** Of a run that waits for what never comes: it is unpaused, then cancelled, and where it does not mind, ended. */
async function endOf(run: TestRun): Promise<string> {
  for (const end of [
    () => run.unpause(),
    () => run.cancel("it waits for ever"),
    () => run.terminate("it does not mind"),
    () => undefined,
  ]) {
    try {
      const { status, value, failure } = await run.outcome();
      return `${status} ${JSON.stringify(value ?? failure?.message)}`;
    } catch (error) {
      if (!(error instanceof RunStuckError)) throw error;
      await end();
    }
  }
  throw new ProgramError(`run ${run.id} does not end`);
}
