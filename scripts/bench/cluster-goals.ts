/** What the figures of a cluster are held against. Its nodes are on one machine of two cores, which they share. */
import type { Goal } from "./goals.ts";

const three = { replicas: 3, at: "leader" };
const throughput = (replicas: number, shards: number): Goal => ({
  workload: "C2",
  metric: "workflows_per_s",
  title: `one-step runs, replicas: ${replicas}, shards: ${shards}`,
  where: { replicas, shards },
  better: "higher",
});
const atSize = (metric: string, title: string, where: Readonly<Record<string, number>>): Goal => ({
  workload: "C3",
  metric,
  title: `${title}, ${(where.events as number).toLocaleString("en-US")} events`,
  where,
  better: "lower",
});
const sizes = [10_000, 100_000, 1_000_000];

export const clusterGoals: readonly Goal[] = [
  { workload: "C1", metric: "start_acked_p50", title: "start → acknowledged, one node, p50", where: { replicas: 1 }, better: "lower" },
  { workload: "C1", metric: "start_acked_p50", title: "start → acknowledged, three nodes, p50", where: three, better: "lower", reach: 5 },
  { workload: "C1", metric: "start_acked_p95", title: "the same, p95", where: three, better: "lower" },
  { workload: "C1", metric: "start_acked_p99", title: "the same, p99", where: three, better: "lower" },
  {
    workload: "C1",
    metric: "start_acked_p50",
    title: "the same, asked at another node, p50",
    where: { replicas: 3, at: "other" },
    better: "lower",
  },
  { workload: "C1", metric: "start_to_step_p50", title: "start → first activity line, three nodes, p50", better: "lower" },
  ...[throughput(1, 1), throughput(3, 1), throughput(5, 1)],
  ...[throughput(1, 4), throughput(1, 16), throughput(3, 4), throughput(3, 16)],
  ...sizes.map((events) => atSize("restart", "kill -9 → serves, one node", { nodes: 1, events })),
  ...sizes.map((events) => atSize("restart", "kill -9 → serves, one of three", { nodes: 3, events })),
  ...sizes.map((events) => atSize("caught_up_after", "then has the 1,000 it missed", { nodes: 3, events })),
  ...sizes.map((events) => atSize("new_replica", "a shard's replica on a new node", { nodes: 3, events })),
  { workload: "C4", metric: "idle_cpu", title: "CPU at rest, one node", where: { nodes: 1, shards: 1 }, better: "lower" },
  {
    workload: "C4",
    metric: "idle_cpu",
    title: "CPU at rest, one node, 500 shards",
    where: { nodes: 1, shards: 500 },
    better: "lower",
    reach: 5,
  },
  {
    workload: "C4",
    metric: "idle_cpu",
    title: "CPU at rest, busiest of three nodes, 500 shards",
    where: { nodes: 3, shards: 500 },
    better: "lower",
    reach: 5,
  },
  { workload: "C5", metric: "split_before_p99", title: "start → acknowledged before a split, p99", better: "lower" },
  { workload: "C5", metric: "split_during_p99", title: "during it, p99", better: "lower", reach: 50 },
  { workload: "C5", metric: "split_longest", title: "longest during it", better: "lower" },
  { workload: "C5", metric: "merge_before_p99", title: "start → acknowledged before a merge, p99", better: "lower" },
  { workload: "C5", metric: "merge_during_p99", title: "during it, p99", better: "lower", reach: 50 },
  { workload: "C5", metric: "merge_longest", title: "longest during it", better: "lower" },
  { workload: "C6", metric: "first_success_p50", title: "kill -9 of the leader → a start succeeds, p50", better: "lower" },
  { workload: "C6", metric: "caller_success_p99", title: "→ each caller's start succeeds, p99", better: "lower", reach: 2000 },
  { workload: "C7", metric: "hopskip_append_p50", title: "signal acknowledged, three nodes, p50", better: "lower" },
  { workload: "C7", metric: "etcd_append_p50", title: "etcd: put acknowledged, three members, p50", better: "lower" },
  { workload: "C7", metric: "restate_append_p50", title: "Restate: invocation accepted, three nodes, p50", better: "lower" },
  { workload: "C7", metric: "hopskip_append_p99", title: "signal acknowledged, three nodes, p99", better: "lower" },
  { workload: "C7", metric: "etcd_append_p99", title: "etcd: put acknowledged, three members, p99", better: "lower" },
  { workload: "C7", metric: "restate_append_p99", title: "Restate: invocation accepted, three nodes, p99", better: "lower" },
  { workload: "C7", metric: "hopskip_appends_per_s", title: "signals, 50 at a time, three nodes", better: "higher" },
  { workload: "C7", metric: "etcd_appends_per_s", title: "etcd: puts, 50 at a time, three members", better: "higher" },
  { workload: "C7", metric: "restate_appends_per_s", title: "Restate: invocations, 50 at a time, three nodes", better: "higher" },
];
