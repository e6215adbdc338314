/**
 * The workflows that are measured. Their own code has no clock and no socket: what is to be
 * timed is the first line of an activity.
 */
import { activities, callWorkflow, channel, durable, method, signal, sleep, yieldChunk } from "@hopskip/runtime";
import type * as bench from "./activities.ts";

const { step, echo, note } = activities<typeof bench>();

/** One durable step, which tells `step:<id>`. */
export const one = durable(({ id, payload }: { id: string; payload: string }): Promise<string> => step({ id, payload }));

/** `n` durable steps, one after another. */
export const steps = durable(async ({ n, payload }: { n: number; payload: string }): Promise<number> => {
  for (let i = 0; i < n; i++) await echo(payload);
  return n;
});

/** Tells `parked`, waits for a signal, tells `go:<id>`. */
export const waiter = durable(async ({ id }: { id: string }): Promise<void> => {
  await note({ k: "parked", id });
  await signal("go");
  await note({ k: `go:${id}` });
});

/** Takes `n` signals, tells `counted:<key>`. */
export const counter = durable(async ({ key, n }: { key: string; n: number }): Promise<void> => {
  for (let i = 0; i < n; i++) await signal("count");
  await note({ k: `counted:${key}` });
});

/** Tells `sleeping`, sleeps for `ms` or until a moment, tells `woke`. */
export const sleeper = durable(async ({ id, ms, until }: { id: string; payload: string; ms?: number; until?: number }): Promise<void> => {
  await note({ k: "sleeping", id });
  await sleep(until === undefined ? (ms ?? 0) : { until });
  await note({ k: "woke", id });
});

/** Yields `n` chunks, one after another. */
export const streamer = durable(async ({ n, payload }: { n: number; payload: string }): Promise<number> => {
  await signal("go");
  for (let i = 0; i < n; i++) await yieldChunk({ i, payload });
  return n;
});

/** Answers calls of `echo` with what they bring. */
export const answerer = durable(async (): Promise<void> => {
  method("echo", (input) => input);
  await signal("close");
});

/** `n` calls of another run's method, one after another. */
export const caller = durable(async ({ to, n, payload }: { to: string; n: number; payload: string }): Promise<number> => {
  for (let i = 0; i < n; i++) await callWorkflow(to, "echo", payload);
  return n;
});

/** Takes a channel's messages until it is closed, and says how many they were. */
export const taker = durable(async ({ channel: name }: { channel: string }): Promise<number> => {
  let taken = 0;
  for (;;) {
    const { messages, closed } = await channel(name).read();
    taken += messages.length;
    if (closed) return taken;
  }
});

/** The same of one that sums up. */
export const summer = durable(async ({ channel: name }: { channel: string }): Promise<number> => {
  let sum = 0;
  for (;;) {
    const { value = 0, closed } = await channel(name).reduced();
    sum += value;
    if (closed) return sum;
  }
});
