/** Schedules of the simulator: intervals with drawn policies, and what people do with them. */
import type { RunId } from "#core/base";
import type { Command } from "#core/shard";
import { decodeScheduleCommand, encodeScheduleCommand, fromBytes, OverlapPolicy, type ScheduleCommandInit, toBytes } from "#proto";
import type { SimulatedClient } from "./client.ts";
import { typeOf } from "./program.ts";
import type { Simulation } from "./simulation.ts";
import { one } from "./strikes.ts";

type Asked = ScheduleCommandInit extends infer Init ? (Init extends { kind: string } ? Omit<Init, "schedule"> : never) : never;

/** What is asked of a schedule, as Core has it. */
export function scheduleAsk(run: RunId, asked: Asked): Extract<Command, { kind: "schedule" }> {
  const bytes = toBytes(encodeScheduleCommand, { ...asked, schedule: run } as ScheduleCommandInit);
  return { kind: "schedule", run, ask: fromBytes(decodeScheduleCommand, bytes) };
}

const policies = [OverlapPolicy.skip, OverlapPolicy.bufferOne, OverlapPolicy.bufferAll, OverlapPolicy.allowAll];

/** Some schedules from the beginning on, that are paused, resumed and triggered now and then. */
export function beginSchedules(sim: Simulation): void {
  const { prng, schedule, workload } = sim;
  for (let i = 1 + prng.below(3); i > 0; i--) {
    const run = `default:sched${i}` as RunId;
    const spec = { everyMs: 2000 + prng.below(20_000), jitterMs: prng.chance(0.3) ? prng.below(5000) : 0 };
    const policy = { overlap: one(sim, policies) as number, catchUpMs: prng.chance(0.5) ? prng.below(8000) + 1 : 3_600_000 };
    const config = { spec, action: { type: typeOf(one(sim, workload.programs) as number) }, policy };
    const later = (act: (client: SimulatedClient) => void) =>
      schedule.after(prng.fraction() * workload.faultMs * 0.9, () => act(one(sim, sim.clients) as SimulatedClient));
    schedule.after(prng.below(5000), () => sim.clients[0]?.ask(scheduleAsk(run, { kind: "create", value: { config } })));
    for (let n = prng.below(3); n > 0; n--)
      later((client) => client.ask(scheduleAsk(run, { kind: "pause", value: { reason: "for a while" } })));
    for (let n = prng.below(4); n > 0; n--) later((client) => client.ask(scheduleAsk(run, { kind: "resume", value: {} })));
    for (let n = prng.below(3); n > 0; n--) later((client) => client.ask(scheduleAsk(run, { kind: "trigger", value: {} })));
  }
}
