/** A project with workflows for every command, and a server that runs them, for tests of the command line. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cluster, Finished, RunOptions, Server } from "./harness.ts";

const workflows = `
import { activities, callWorkflow, CancelledError, durable, method, query, searchable, signal, sleep } from "@hopskip/runtime";
import type * as work from "./activities.ts";
const { upper, flaky } = activities<typeof work>({ retry: { initialMs: 1, maxMs: 5, attempts: 4 } });

export const greet = durable(async (name: string) => \`Hello, \${await upper(name)}!\`);
export const insist = durable(async (key: string) => await flaky(key));
export const echo = durable(async (value: unknown) => value);
export const fails = durable(async (what: string) => { throw new RangeError(what); });
export const large = durable(async (bytes: number) => "x".repeat(bytes));
export const naps = durable(async (ms: number) => { await sleep(ms); return "awake"; });
export const collects = durable(async () => {
  const seen: unknown[] = [];
  query("seen", () => seen);
  query("count", (step: number) => seen.length * (step ?? 1));
  for (;;) {
    const value = await signal<{ stop?: boolean } | null>("item");
    if (value?.stop) return seen;
    seen.push(value);
  }
});
export const account = durable(async (opened: number) => {
  let cents = opened;
  let held = 0;
  query("cents", () => cents);
  query("held", () => held);
  method("withdraw", async (amount: number) => ({ cents: Number(await upper(String(cents -= amount))) }), {
    validate: (amount) => { if (amount > cents) throw new RangeError(\`There are \${cents} cents\`); },
  });
  method("hold", () => { held += 1; return signal("release"); });
  await signal("close");
  return cents;
});
export const pays = durable((to: string) => callWorkflow(to, "withdraw", 50));
export const orders = durable(async (order: { customer: string; total: number; paid?: string }) => {
  searchable("customer", order.customer);
  searchable("total", order.total);
  await upper(order.customer);
  searchable("paid", order.paid === undefined ? null : new Date(order.paid));
  await signal("done");
});
export const tidies = durable(async () => {
  try { await sleep(3_600_000); } catch (error) {
    if (error instanceof CancelledError) await upper("cleaned up");
    throw error;
  }
});
`;

const activityFile = `
export const upper = (text: string) => text.toUpperCase();
const tries = new Map<string, number>();
export const flaky = (key: string) => {
  const count = (tries.get(key) ?? 0) + 1;
  tries.set(key, count);
  if (count < 3) throw new Error("not yet");
  return count;
};
`;

/** Names that quote, escape or look like something else. */
export const awkwardNames = ['it\'s "quoted"', "a:b", "../up", "sp ace", "-dash", "日本🦘", "$(id)`id`", "'; DROP TABLE runs;--", "*"];

/** Commands against one server. */
export class Cli {
  readonly cluster: Cluster;
  readonly server: Server;

  constructor(cluster: Cluster, server: Server) {
    this.cluster = cluster;
    this.server = server;
  }

  /** A server with the workflows deployed and a worker in its process. */
  static async start(cluster: Cluster): Promise<Cli> {
    const folder = join(cluster.folder, "project");
    mkdirSync(folder);
    writeFileSync(join(folder, "workflows.ts"), workflows);
    writeFileSync(join(folder, "activities.ts"), activityFile);
    const server = await cluster.server({ args: ["--worker", "--activities", join(folder, "activities.ts")] });
    const cli = new Cli(cluster, server);
    await cli.ok(["deploy", "project/workflows.ts"]);
    return cli;
  }

  run(args: readonly string[], options: Omit<RunOptions, "server"> = {}): Promise<Finished> {
    return this.cluster.run(args, { ...options, server: this.server });
  }

  /** Standard output of a command that ends with 0. */
  ok(args: readonly string[], options: Omit<RunOptions, "server"> = {}): Promise<string> {
    return this.cluster.expectOk(args, { ...options, server: this.server });
  }

  /** The value that a command prints with `-o json`. */
  async json<T>(args: readonly string[], options: Omit<RunOptions, "server"> = {}): Promise<T> {
    return JSON.parse(await this.ok([...args, "-o", "json"], options)) as T;
  }

  /** Starts a run and returns its id. */
  async started(type: string, ...args: readonly string[]): Promise<string> {
    return (await this.ok(["run", type, "-o", "ids", ...args])).trimEnd();
  }
}
