/** What strikes a cluster under load. Each case leaves it healed, with all its nodes. */
import { Prng } from "#core/base";
import { until } from "#tests/cluster";
import type { Weather } from "./link.ts";
import type { Machine, Machines } from "./machines.ts";
import { outside } from "./net.ts";
import type { Workload } from "./workload.ts";

/** Answers that clients get before a fault strikes, so that there is a load to strike. */
const warmAnswers = 60;

/** Longest wait for every client to be answered again after a fault. */
const recoveryMsMax = 80_000;

/** The shard that holds the runs of a cluster that was never split. */
export const firstShard = 1;

/** Milliseconds below which a share of the values lies, 0–1. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] ?? 0;
}

export async function warmUp(workload: Workload, answers = warmAnswers): Promise<void> {
  const from = workload.answers;
  await until(() => workload.answers >= from + answers, { what: () => `answers to clients; ${workload.answers - from} came` });
}

/** Resolves when every client was answered something that it asked after `fromMs`. */
export async function untilAllAnswered(workload: Workload, fromMs: number): Promise<void> {
  await until(() => workload.answeredSince(fromMs) >= workload.clients, {
    withinMs: recoveryMsMax,
    what: () => `${workload.clients} clients to be answered after a fault; ${workload.answeredSince(fromMs)} were`,
  });
}

/** What each client saw of an outage that began at `fromMs`, in milliseconds: its longest silence. */
export async function outagesSince(workload: Workload, fromMs: number): Promise<number[]> {
  await untilAllAnswered(workload, fromMs);
  return workload.silences(fromMs, performance.now());
}

export interface Outages {
  /** Of each client for each fault. */
  readonly outageMs: number[];
}

/** The leader of a shard (0: placement) is killed with -9 and started again, `times` times. */
export async function killLeaders(machines: Machines, workload: Workload, times: number, shard = firstShard): Promise<Outages> {
  const outageMs: number[] = [];
  for (let i = 0; i < times; i++) {
    await warmUp(workload);
    const leader = await machines.leader(shard);
    const killedMs = performance.now();
    await leader.kill();
    outageMs.push(...(await outagesSince(workload, killedMs)));
    await leader.restart();
    await machines.untilWhole();
  }
  return { outageMs };
}

/** The leader is stopped for longer than its lease and let go: it must not answer from the past. */
export async function pauseLeaders(machines: Machines, workload: Workload, pausesMs: readonly number[]): Promise<Outages> {
  const outageMs: number[] = [];
  for (const pauseMs of pausesMs) {
    await warmUp(workload);
    const leader = await machines.leader(firstShard);
    const stoppedMs = performance.now();
    leader.process.signal("SIGSTOP");
    await Bun.sleep(pauseMs);
    leader.process.signal("SIGCONT");
    outageMs.push(...(await outagesSince(workload, stoppedMs)));
    await machines.untilWhole();
  }
  return { outageMs };
}

/** How a machine is cut off from the others; clients reach it all the while, but for the last. */
export const cuts = ["both ways", "hears nobody", "is heard by nobody", "one neighbour", "clients too"] as const;
export type Cut = (typeof cuts)[number];

async function cutOff({ net, all }: Machines, { number }: Machine, cut: Cut): Promise<void> {
  if (cut === "hears nobody") return net.deafen(number);
  if (cut === "is heard by nobody") return net.mute(number);
  if (cut === "one neighbour") {
    const neighbour = (number % all.length) + 1;
    await net.set(number, neighbour, { isCut: true });
    return net.set(neighbour, number, { isCut: true });
  }
  await net.isolate(number);
  if (cut !== "clients too") return;
  await net.set(outside, number, { isCut: true });
  await net.set(number, outside, { isCut: true });
}

/** The leader of the runs is cut off for a while, in each of the ways. */
export async function cutLeaders(machines: Machines, workload: Workload, ways: readonly Cut[], cutMs: number): Promise<Outages> {
  const outageMs: number[] = [];
  for (const way of ways) {
    await warmUp(workload);
    const leader = await machines.leader(firstShard);
    const cutAtMs = performance.now();
    await cutOff(machines, leader, way);
    await Bun.sleep(cutMs);
    await machines.net.heal();
    outageMs.push(...(await outagesSince(workload, cutAtMs)));
    await machines.untilWhole();
  }
  return { outageMs };
}

/** Bad, and still one in which three nodes must be of use. */
export const badWeather: Partial<Weather> = { delayMs: 10, jitterMs: 20, loss: 0.05, duplication: 0.2, reorder: 0.1 };

/** All links are bad for a while. */
export async function storm(machines: Machines, workload: Workload, weather: Partial<Weather>, lastsMs: number): Promise<Outages> {
  await warmUp(workload);
  const begunMs = performance.now();
  await machines.net.everywhere(weather, { alsoClients: true });
  await Bun.sleep(lastsMs);
  await machines.net.heal();
  const outageMs = await outagesSince(workload, begunMs);
  await machines.untilWhole();
  return { outageMs };
}

/** Faults one after another, in fair weather and in bad, as they are drawn. */
export async function turmoil(
  machines: Machines,
  workload: Workload,
  { steps, seed }: { readonly steps: number; readonly seed: number },
): Promise<Outages> {
  const prng = new Prng(seed);
  for (let step = 0; step < steps; step++) {
    const machine = machines.machine(1 + prng.below(machines.all.length));
    const kind = prng.below(5);
    await machines.net.everywhere(prng.below(2) === 0 ? {} : badWeather);
    if (kind === 0) await machine.kill();
    else if (kind === 1) machine.process.signal("SIGSTOP");
    else await cutOff(machines, machine, cuts[prng.below(cuts.length)] as Cut);
    await Bun.sleep(200 + prng.below(2500));
    if (kind === 0) await machine.restart();
    if (kind === 1) machine.process.signal("SIGCONT");
    await machines.net.heal();
    if (prng.below(2) === 0) await untilAllAnswered(workload, performance.now());
  }
  await machines.untilWhole();
  return { outageMs: [] };
}

/** The shard is split and merged again under load, and the leader of a part is killed in between. */
export async function splitUnderLoad(machines: Machines, workload: Workload): Promise<Outages> {
  const hop = (...args: string[]) => machines.hop.expectOk(args, { server: machines });
  const splitAtMs = performance.now();
  await warmUp(workload);
  await hop("shard", "split", String(firstShard));
  await warmUp(workload);
  const outageMs = workload.silences(splitAtMs, performance.now());
  await killLeaders(machines, workload, 1);
  await warmUp(workload);
  await hop("shard", "merge", String(firstShard));
  await warmUp(workload);
  await machines.untilWhole();
  return { outageMs };
}
