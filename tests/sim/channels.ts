/** Channels of the simulator: clients send to them in bursts, and open, change and close them now and then. */
import type { RunId } from "#core/base";
import type { Command } from "#core/shard";
import { type ChannelCommandInit, decodeChannelCommand, encodeChannelCommand, fromBytes, Reducer, toBytes } from "#proto";
import type { SimulatedClient } from "./client.ts";
import { channelNames, sumChannel } from "./program.ts";
import type { Simulation } from "./simulation.ts";
import { one } from "./strikes.ts";

type Asked = ChannelCommandInit extends infer Init ? (Init extends { kind: string } ? Omit<Init, "channel"> : never) : never;

/** What is asked of a channel, as Core has it. */
export function channelAsk(run: RunId, asked: Asked): Extract<Command, { kind: "channel" }> {
  const bytes = toBytes(encodeChannelCommand, { ...asked, channel: run } as ChannelCommandInit);
  return { kind: "channel", run, ask: fromBytes(decodeChannelCommand, bytes) };
}

const text = new TextEncoder();

/** Some bursts over the time of the faults. The bounds are small, so that channels fill up. */
export function beginChannels(sim: Simulation): void {
  const { prng, schedule, workload } = sim;
  let sendings = 0;
  const ask = (run: string, asked: Asked) => (one(sim, sim.clients) as SimulatedClient).ask(channelAsk(run as RunId, asked));
  ask(sumChannel, { kind: "open", value: { reducer: Reducer.sum } });
  for (const name of channelNames) {
    const expireMs = prng.chance(0.3) ? 2000 + prng.below(20_000) : 0;
    if (prng.chance(0.6)) ask(name, { kind: "open", value: { messagesMax: 1 + prng.below(200), expireMs } });
    for (let n = prng.below(40); n > 0; n--)
      schedule.after(prng.fraction() * workload.faultMs * 0.9, () => {
        const id = `sending-${++sendings}`;
        const count = prng.chance(0.3) ? 1 + prng.below(60) : 1;
        const message = Array.from({ length: count }, (_, i) => ({ data: text.encode(`"${id}/${i}"`) }));
        ask(name, { kind: "send", value: { message, id } });
        ask(sumChannel, { kind: "send", value: { message: [{ data: text.encode(`${count}`) }], id } });
      });
    if (prng.chance(0.2))
      schedule.after(prng.fraction() * workload.faultMs, () => ask(name, { kind: "close", value: { reason: "for a while" } }));
    if (prng.chance(0.3)) schedule.after(prng.fraction() * workload.faultMs, () => ask(name, { kind: "open", value: {} }));
  }
}
