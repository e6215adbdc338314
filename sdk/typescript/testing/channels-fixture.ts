/** Workflows that use channels. */
import { activity, channel, durable, sleep, TimeoutError } from "@hopskip/runtime";

/** Reads until the channel is closed, in batches. */
export const reader = durable(async ({ name, max }: { name: string; max?: number }) => {
  const batches: { offset: number; messages: number[]; missed: number }[] = [];
  for (;;) {
    const { offset, messages, missed, closed } = await channel<number>(name).read(max === undefined ? {} : { max });
    if (messages.length > 0) batches.push({ offset, messages: [...messages], missed });
    if (closed) return batches;
  }
});

/** Takes some of a loop, then some by a read, then the rest of another loop. */
export const leaver = durable(async (name: string) => {
  const seen: number[] = [];
  for await (const n of channel<number>(name)) {
    seen.push(n);
    if (n === 2) break;
  }
  const { messages } = await channel<number>(name).read({ max: 2 });
  seen.push(...messages);
  for await (const n of channel<number>(name)) seen.push(n);
  return seen;
});

export const patient = durable(async (name: string) => {
  try {
    await channel(name).read({ timeoutMs: 1000 });
    return "something came";
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
  }
  const { messages, offset } = await channel<number>(name).read();
  return { late: messages, offset };
});

export const counter = durable(async ({ name, reads }: { name: string; reads: number }) => {
  const got: unknown[] = [];
  for (let i = 0; i < reads; i++) {
    const { count, value } = await channel(name).reduced<unknown>();
    got.push([count, value]);
    await sleep(1000);
  }
  return got;
});

export const sender = durable(async ({ name, values }: { name: string; values: unknown[] }) => {
  const errors: string[] = [];
  for (const value of values) {
    try {
      await channel(name).send(value);
    } catch (error) {
      errors.push((error as Error & { type: string }).type);
    }
  }
  return errors;
});

/** Two reads of one channel at a time: the second is refused. */
export const greedy = durable(async (name: string) => {
  const first = channel(name).read();
  try {
    await channel(name).read();
  } catch (error) {
    return [(error as Error & { type: string }).type, (await first).messages];
  }
  return "both";
});

/** Works on each message, so that a crash finds it in the middle of one. */
export const worker = durable(async (name: string) => {
  let sum = 0;
  for await (const n of channel<number>(name)) sum += (await activity("double", n)) as number;
  return sum;
});

/** Reads in the wrong way, then in the right one. */
export const confused = durable(async ({ name, reduces }: { name: string; reduces: boolean }) => {
  const wrong = async () => (reduces ? channel(name).read() : channel(name).reduced());
  const refused: string[] = [];
  for (let i = 0; i < 2; i++) await wrong().catch((error: Error & { type: string }) => refused.push(error.type));
  const right = reduces ? (await channel(name).reduced()).value : (await channel(name).read()).messages;
  let range = "";
  try {
    await channel(name).read({ max: 0 });
  } catch (error) {
    range = (error as Error).name;
  }
  return { refused, right, range };
});
