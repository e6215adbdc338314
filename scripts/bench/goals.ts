/**
 * What each figure is held against: the best median of another durable execution system, and what
 * this product is meant to reach on two cores whose disk makes a record durable in 0.3 ms.
 */
import type { Config } from "./product.ts";
import type { Result } from "./result.ts";

export interface Goal {
  readonly workload: string;
  readonly metric: string;
  /** What the figure means, in a few words. */
  readonly title: string;
  /** Fields that a result must have to be this figure. */
  readonly where?: Readonly<Record<string, string | number>>;
  readonly better: "lower" | "higher";
  readonly reach?: number;
  /** Where another configuration is held to another figure. */
  readonly reachIn?: Readonly<Partial<Record<Config, number>>>;
  readonly best?: { readonly of: string; readonly value: number };
}

const restate = (value: number) => ({ of: "Restate", value });
const dbos = (value: number) => ({ of: "DBOS", value });
const temporal = (value: number) => ({ of: "Temporal", value });

const one = { n: 1 };
const ten = { n: 10 };
const single = { concurrency: 1 };
const many = { concurrency: 50 };

export const goals: readonly Goal[] = [
  { workload: "floor", metric: "overwrite_fdatasync_p50", title: "128 B + fdatasync, written blocks, p50", better: "lower" },
  { workload: "floor", metric: "append_fdatasync_p50", title: "128 B + fdatasync, growing file, p50", better: "lower" },
  {
    workload: "W1",
    metric: "start_to_step_p50",
    title: "start → first activity line, p50",
    better: "lower",
    reach: 1.5,
    best: restate(4.7),
  },
  {
    workload: "W1",
    metric: "start_to_step_p99",
    title: "start → first activity line, p99",
    better: "lower",
    reach: 5,
    best: restate(11.7),
  },
  {
    workload: "W2",
    metric: "ms_per_step",
    title: "one step of a sequential run",
    better: "lower",
    reach: 1.2,
    reachIn: { embedded: 0.8 },
    best: restate(1.91),
  },
  { workload: "W2", metric: "cpu_per_step", title: "CPU of one sequential step", better: "lower" },
  {
    workload: "W3",
    metric: "workflows_per_s",
    where: one,
    title: "one-step runs, 50 at a time",
    better: "higher",
    reach: 4000,
    best: restate(535),
  },
  { workload: "W3", metric: "cpu_per_step", where: one, title: "CPU of a one-step run, 50 at a time", better: "lower" },
  {
    workload: "W3",
    metric: "steps_per_s",
    where: ten,
    title: "steps of ten-step runs, 50 at a time",
    better: "higher",
    reach: 8000,
    best: restate(1658),
  },
  {
    workload: "W3",
    metric: "cpu_per_step",
    where: ten,
    title: "CPU of a step, 50 runs at a time",
    better: "lower",
    reach: 150,
    best: restate(1100),
  },
  {
    workload: "W4",
    metric: "signal_to_resume_p50",
    title: "signal → next activity line, p50",
    better: "lower",
    reach: 1.5,
    best: restate(2.2),
  },
  {
    workload: "W4",
    metric: "signal_to_resume_p99",
    title: "signal → next activity line, p99",
    better: "lower",
    reach: 4,
    best: restate(6.4),
  },
  {
    workload: "W5",
    metric: "events_processed_per_s",
    where: single,
    title: "signals of one run, one at a time",
    better: "higher",
    reach: 1000,
  },
  {
    workload: "W5",
    metric: "events_processed_per_s",
    where: many,
    title: "signals of one run, 50 in flight",
    better: "higher",
    reach: 10_000,
    best: temporal(388),
  },
  {
    workload: "W6",
    metric: "rss_server_above_idle",
    where: { state: "10000 sleeping" },
    title: "10,000 sleeping runs, server memory",
    better: "lower",
    best: dbos(226),
  },
  {
    workload: "W6",
    metric: "rss_server_above_idle",
    where: { state: "100000 sleeping" },
    title: "100,000 sleeping runs, server memory",
    better: "lower",
    reach: 300,
  },
  { workload: "W6", metric: "sleepers_started_per_s", title: "sleeping runs started", better: "higher", best: restate(1046) },
  {
    workload: "W7",
    metric: "server_ready",
    where: { state: "empty" },
    title: "server ready, empty folder",
    better: "lower",
    reach: 150,
    best: dbos(63),
  },
  {
    workload: "W7",
    metric: "server_ready",
    where: { state: "existing" },
    title: "server ready, existing data",
    better: "lower",
    reach: 150,
    best: dbos(59),
  },
  { workload: "W8", metric: "first_resume", title: "kill -9 → first of 1,000 runs back", better: "lower", best: dbos(539) },
  { workload: "W8", metric: "all_resumed", title: "kill -9 → all 1,000 runs back", better: "lower", reach: 500, best: restate(1994) },
  { workload: "W9", metric: "chunks_per_s", title: "chunks of one run to its consumer", where: { runs: 1 }, better: "higher" },
  { workload: "W9", metric: "chunks_per_s", title: "chunks of 20 runs to theirs", where: { runs: 20 }, better: "higher" },
  { workload: "W9", metric: "cpu_per_chunk", title: "CPU of one chunk, 20 runs", where: { runs: 20 }, better: "lower" },
  { workload: "W10", metric: "call_to_answer_p50", title: "a client's call of a method → answer, p50", better: "lower" },
  { workload: "W10", metric: "call_to_answer_p99", title: "a client's call of a method → answer, p99", better: "lower" },
  { workload: "W10", metric: "ms_per_call", title: "a run's call of another run's method", better: "lower" },
  { workload: "W11", metric: "messages_per_s", title: "messages of a channel to a run", where: { reducer: "none" }, better: "higher" },
  { workload: "W11", metric: "messages_per_s", title: "messages of a channel that sums up", where: { reducer: "sum" }, better: "higher" },
  {
    workload: "W11",
    metric: "history_of_reader",
    title: "history of a run that read 1,000,000 messages",
    where: { reducer: "none" },
    better: "lower",
    reach: 100,
  },
  {
    workload: "W11",
    metric: "history_of_reader",
    title: "of one that read their sum",
    where: { reducer: "sum" },
    better: "lower",
    reach: 100,
  },
  { workload: "W11", metric: "cpu_per_message", title: "CPU of one message, kept", where: { reducer: "none" }, better: "lower" },
  { workload: "W11", metric: "cpu_per_message", title: "CPU of one message, summed up", where: { reducer: "sum" }, better: "lower" },
  { workload: "S1", metric: "commit_p50", title: "signal acknowledged, p50", where: { sealing: "off" }, better: "lower" },
  { workload: "S1", metric: "commit_p50", title: "the same while it seals, p50", where: { sealing: "on" }, better: "lower" },
  { workload: "S1", metric: "commit_p99", title: "signal acknowledged, p99 of each turn", where: { sealing: "off" }, better: "lower" },
  { workload: "S1", metric: "commit_p99", title: "the same while it seals, p99 of each turn", where: { sealing: "on" }, better: "lower" },
  { workload: "S1", metric: "p99_ratio", title: "p99 while it seals, to that without", better: "lower", reach: 1.3 },
  {
    workload: "S1",
    metric: "cpu_of_sealing",
    where: { events: 20_000 },
    title: "CPU of sealing, an event of 20,000",
    better: "lower",
    reach: 20,
  },
  {
    workload: "S1",
    metric: "cpu_of_sealing",
    where: { events: 50_000 },
    title: "CPU of sealing, an event of 50,000",
    better: "lower",
    reach: 20,
  },
];

export const isAbout = (goal: Goal, result: Result): boolean =>
  result.workload === goal.workload &&
  result.metric === goal.metric &&
  Object.entries(goal.where ?? {}).every(([field, value]) => result[field] === value);
