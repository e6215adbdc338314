/** Channels: clicks come from anywhere, in any number; a campaign counts them, a ledger keeps each. */
import { activity, channel, durable, sleep } from "@hopskip/runtime";

export interface Click {
  readonly page: string;
}

/** Takes clicks, however many there are, in batches, until the channel is closed. */
export const ledger = durable(async () => {
  let stored = 0;
  for (;;) {
    const { messages, closed } = await channel<Click>("clicks").read();
    if (messages.length > 0) await activity("store_clicks", { number: messages.length, first: messages[0] });
    stored += messages.length;
    if (closed) return stored;
  }
});

/** Looks once a minute at what a million visitors have come to: the channel adds them up (`hop channel open visits --reducer sum`). */
export const campaign = durable(async ({ goal }: { goal: number }) => {
  let visits = 0;
  while (visits < goal) {
    const { value = 0, closed } = await channel<number>("visits").reduced();
    visits += value;
    if (closed) break;
    if (visits < goal) await sleep(60_000);
  }
  return visits;
});

/** A run may send, too. */
export const visitor = durable(async (pages: readonly string[]) => {
  for (const page of pages) await channel<Click>("clicks").send({ page });
  await channel<number>("visits").send(1);
});
