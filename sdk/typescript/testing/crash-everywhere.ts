/** A scenario again and again, with a crash at each place where one could be. */

import type { TestEnvironment, WorkflowModule } from "./environment.ts";
import { CrashError } from "./errors.ts";
import type { History } from "./history.ts";
import type { CrashOptions, CrashReport, Fault } from "./options.ts";

interface Seen {
  readonly result: string;
  readonly histories: ReadonlyMap<string, History>;
  readonly begun: { readonly records: number };
  readonly ended: { readonly records: number; readonly answers: number };
}

export async function crashEverywhere<M extends WorkflowModule, T>(
  fresh: (fault: Fault) => TestEnvironment<M>,
  scenario: (env: TestEnvironment<M>) => Promise<T>,
  { core = true, worker = true }: CrashOptions,
): Promise<CrashReport> {
  const see = (fault: Fault) => seen(fresh(fault), scenario);
  const plain = await see({});
  const again = await see({});
  compare(plain, again, "When it is simply run again");
  let [coreCrashes, evictions] = [0, 0];
  for (let record = plain.begun.records + 1; core && record <= plain.ended.records; record++) {
    compare(plain, await see({ records: [record] }), `With a crash of Core behind its record ${record} of ${plain.ended.records}`);
    coreCrashes++;
  }
  for (let answer = 1; worker && answer <= plain.ended.answers; answer++) {
    compare(plain, await see({ answers: [answer] }), `With a worker that loses its runs behind answer ${answer} of ${plain.ended.answers}`);
    evictions++;
  }
  return { coreCrashes, evictions };
}

async function seen<M extends WorkflowModule, T>(
  env: TestEnvironment<M>,
  scenario: (env: TestEnvironment<M>) => Promise<T>,
): Promise<Seen> {
  const begun = env.progress;
  const result = await scenario(env).then(
    (value) => `result ${JSON.stringify(value) ?? "undefined"}`,
    (error: unknown) => `error ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`,
  );
  const histories = new Map(env.runs.map((run) => [run.id, run.history()]));
  return { result, histories, begun, ended: env.progress };
}

/** Throws `CrashError` that says what differs, and where it begins to. */
function compare(plain: Seen, crashed: Seen, when: string): void {
  if (crashed.result !== plain.result)
    throw new CrashError(`${when}, the scenario ends with ${crashed.result}; without, with ${plain.result}`);
  for (const [run, history] of plain.histories) {
    const other = crashed.histories.get(run);
    if (other?.hash === history.hash) continue;
    throw new CrashError(`${when}, the history of ${run} is another one: ${difference(history.lines(), other?.lines() ?? [])}`);
  }
}

function difference(want: readonly string[], got: readonly string[]): string {
  const at = want.findIndex((line, i) => line !== got[i]);
  if (at < 0 && got.length === want.length) return "its events are the same, but not their times, inputs or results";
  const place = at < 0 ? want.length : at;
  return `event ${got[place] ?? "missing"}; without, ${want[place] ?? "none"}`;
}
