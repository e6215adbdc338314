/** Workflows of the test kit's own tests. */
import {
  activities,
  activity,
  durable,
  query,
  resultOf,
  StreamDisconnectedError,
  sendSignal,
  shield,
  signal,
  sleep,
  TimeoutError,
  yieldChunk,
} from "@hopskip/runtime";

const day = 24 * 60 * 60 * 1000;

export const trialReminder = durable(async (user: { email: string }) => {
  await sleep(14 * day);
  return activity<string>("send_email", { to: user.email, at: Date.now() });
});

const { charge, ship } = activities<{
  charge(input: { cents: number }): Promise<{ id: string }>;
  ship(input: { payment: string }): Promise<string>;
}>({ retry: { attempts: 3, initialMs: 60_000, jitter: 0 } });

export const order = durable(async (input: { cents: number }) => {
  let step = "charging";
  query("step", () => step);
  const payment = await charge(input);
  step = "waiting";
  const approved = await signal<boolean>("approve");
  step = "shipping";
  return { approved, shipped: await ship({ payment: payment.id }) };
});

export const tree = durable(async () => {
  const seen: string[] = [];
  const note = async (name: string, ms: number) => {
    await sleep(ms);
    seen.push(name);
    return name;
  };
  const first = await Promise.race([note("slow", 5000), note("fast", 1000), activity<string>("work", { takes: 3000 })]);
  const all = await Promise.all([activity("work", { takes: 10 }), note("third", 4000), activity("work", { takes: 20 })]);
  return { first, all, seen, random: Math.random() };
});

export const vote = durable(async () => {
  try {
    return await signal<string>("vote", { timeoutMs: day });
  } catch (error) {
    if (error instanceof TimeoutError) return "too late";
    throw error;
  }
});

export const cleanup = durable(async () => {
  try {
    await activity("hold", null);
  } finally {
    await shield(async () => {
      await sleep(1000);
      await activity("release", null);
    });
  }
});

export const parcel = durable(async () => ({ item: await signal<string>("item") }));

export const line = durable(async (to: string) => {
  await sendSignal(to, "item", "book");
  return resultOf<{ item: string }>(to);
});

export const naps = durable(async (count: number) => {
  await Promise.all(Array.from({ length: count }, () => sleep(1000)));
  return count;
});

export const fails = durable(async () => {
  console.log("about to fail");
  throw new RangeError("no such luck");
});

export const streams = durable(async (count: number) => {
  for (let n = 1; n <= count; n++) {
    try {
      await yieldChunk({ n });
    } catch (error) {
      if (!(error instanceof StreamDisconnectedError)) throw error;
      return `left at ${n}`;
    }
    await sleep(1000);
  }
  return "taken";
});
