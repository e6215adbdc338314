/**
 * The workflow that executes a program. What it asks for depends on everything that it saw: each
 * operation's input tells the order of all that came before, the time, and a random number.
 */
import { activity, durable, method, now, query, random, resultOf, sendSignal, shield, signal, sleep } from "@hopskip/runtime";
import type { Node } from "./program.ts";

export const program = durable(async ({ root, method: answer }: { root: Node; method: Node }) => {
  const trace: string[] = [];
  query("trace", () => trace);
  const seen = () => `${trace.join(" ")} ${now()} ${random().toFixed(6)}`;
  let leaves = 0;

  async function run(node: Node): Promise<unknown> {
    for (let hop = 0; hop < node.hops; hop++) await Promise.resolve();
    switch (node.kind) {
      case "all":
        return Promise.all(node.of.map(run));
      case "race":
        return Promise.race(node.of.map(run));
      case "any":
        return Promise.any(node.of.map(run));
      case "settled":
        return (await Promise.allSettled(node.of.map(run))).map(({ status }) => status);
      case "seq": {
        const results: unknown[] = [];
        for (const each of node.of) results.push(await run(each));
        return results;
      }
      case "shield":
        return shield(() => run(node.of));
      case "catch":
        try {
          return await run(node.of);
        } catch (error) {
          return nameOf(error);
        }
      case "finally":
        try {
          return await run(node.of);
        } finally {
          await run(node.last);
        }
      default: {
        const name = `${node.kind}${++leaves}`;
        try {
          const value = await leaf(node);
          trace.push(name);
          return value;
        } catch (error) {
          trace.push(`${name}!${nameOf(error)}`);
          throw error;
        }
      }
    }
  }

  function leaf(node: Node): Promise<unknown> {
    switch (node.kind) {
      case "activity": {
        const { takesMs, fails, attempts } = node;
        return activity("act", { takesMs, fails, seen: seen() }, { retry: { attempts, initialMs: 10, maxMs: 1000 } });
      }
      case "sleep":
        return sleep(node.ms);
      case "alarm":
        return new Promise((done) => setTimeout(() => done("rang"), node.ms));
      case "signal":
        return signal(node.name, node.timeoutMs > 0 ? { timeoutMs: node.timeoutMs } : {});
      case "send":
        return sendSignal(node.to, node.name, seen());
      case "result":
        return resultOf(node.of);
      default:
        throw new TypeError(`No leaf is a ${node.kind}`);
    }
  }

  method("ask", async (asked: unknown) => [asked, await run(answer)]);
  try {
    return { value: await run(root), trace };
  } catch (error) {
    // Its own failure tells the trace too, but for a cancellation, which is to end the run as one.
    if (nameOf(error) === "CancelledError") throw error;
    throw new RangeError(`${nameOf(error)} behind ${trace.join(" ")}`);
  }
});

const nameOf = (error: unknown): string => (error instanceof Error ? error.name : "?");
