/** Clusters that seal to one folder, and what the tests of restores ask of them. */
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Server } from "../cluster/harness.ts";
import { Nodes } from "../cluster/nodes.ts";
import { until } from "../until.ts";

const workflows = `
import { activities, callWorkflow, durable, method, resultOf, sendSignal, signal, sleep, spawn } from "@hopskip/runtime";
import type * as work from "./activities.ts";
const { upper, pass } = activities<typeof work>({ retry: { initialMs: 100, maxMs: 500, attempts: 1000 } });

export const greet = durable(async (name: string) => \`Hello, \${await upper(name)}!\`);
export const collects = durable(async (count: number) => {
  const seen: string[] = [];
  while (seen.length < count) seen.push(await signal<string>("item"));
  return seen;
});
export const naps = durable(async (seconds: number) => {
  await sleep(seconds * 1000);
  return "rested";
});
export const tells = durable(async (run: string) => {
  await signal<string>("item");
  await sendSignal(run, "item", "a");
  await sendSignal(run, "item", "b");
  return "told";
});
export const asks = durable(async (run: string) => await resultOf(run));
export const answers = durable(async () => {
  method("ask", async () => "answer " + (await signal<string>("item")));
  await signal("close");
});
export const calls = durable(async (run: string) => {
  try {
    return await callWorkflow<string>(run, "ask");
  } catch (error) {
    return (error as Error).message;
  }
});
export const bears = durable(async (instance: string) => {
  await signal<string>("item");
  return await spawn("greet", "child", { instance }).result();
});
export const waits = durable(async (file: string) => await pass(file));
`;
const activityCode = `
import { existsSync } from "node:fs";
export const upper = (text: string) => text.toUpperCase();
export const pass = (file: string) => {
  if (!existsSync(file)) throw new Error("not yet");
  return "passed";
};
`;

/** Everything is sealed soon, and nothing that is sealed is kept. */
const soon = ["--seal-size", "2KiB", "--seal-age", "300ms", "--keep-size", "1B"];

export interface ShardManifest {
  readonly shard: number;
  readonly number: number;
  readonly restoreEpoch: number;
  readonly through: number;
  readonly segments: readonly { readonly segment: string; readonly index: string; readonly rows: number }[];
  readonly records: readonly { readonly key: string }[];
  readonly checkpoint: {
    readonly range: readonly [first: number, last: number];
    readonly parts: readonly { readonly key: string }[];
  } | null;
}

/** The newest manifest of each shard that has objects in the folder. */
export function manifestsIn(objects: string): Map<number, ShardManifest> {
  const newest = new Map<number, ShardManifest>();
  for (const path of filesOf(objects, "manifest")) {
    const manifest = JSON.parse(readFileSync(path, "utf8")) as ShardManifest;
    newest.set(manifest.shard, manifest);
  }
  return newest;
}

/** Objects of one kind, in the order of their names. */
export function filesOf(objects: string, kind: string): string[] {
  if (!existsSync(objects)) return [];
  const clusters = readdirSync(objects).filter((name) => name.startsWith("hop_"));
  return clusters.flatMap((cluster) => {
    const folder = join(objects, cluster, kind);
    return existsSync(folder)
      ? readdirSync(folder)
          .sort()
          .map((name) => join(folder, name))
      : [];
  });
}

/** Takes the shards back to these manifests. */
export function dropManifests(objects: string, kept: Readonly<Record<number, number>>): void {
  for (const path of filesOf(objects, "manifest")) {
    const [, shard = "", number = ""] = /s(\d+)-(\d+)\.json$/.exec(path) ?? [];
    if (Number(number) > (kept[Number(shard)] ?? Number.POSITIVE_INFINITY)) rmSync(path);
  }
}

export const rootOf = (audit: string) => /^root\s+(\w{64})$/m.exec(audit)?.[1];

/** A cluster, or machines for one, that seal to a folder. */
export class SealingNodes {
  readonly nodes: Nodes;
  /** Folder with the objects. */
  readonly objects: string;
  /** Where they are for the cluster. */
  readonly url: string;
  readonly project: string;

  constructor(count: number, objects: string, url = `file://${objects}`) {
    this.nodes = new Nodes(count);
    this.objects = objects;
    this.url = url;
    this.nodes.extra = ["--object-store", url, ...soon];
    this.project = this.nodes.project({ "workflows.ts": workflows, "activities.ts": activityCode });
  }

  async worker(): Promise<void> {
    const grpc = this.nodes.servers.map((each) => each.grpc).join(",");
    await this.nodes.cluster.worker({ grpc }, ["--activities", join(this.project, "activities.ts")]);
  }

  deploy(): Promise<string> {
    return this.nodes.ok(["deploy", join(this.project, "workflows.ts")]);
  }

  begin(type: string, instance: string, input: unknown): Promise<string> {
    return this.nodes.ok(["run", type, "--input", JSON.stringify(input), "--instance", instance]);
  }

  greet(name: string): Promise<string> {
    return this.nodes.ok(["run", "greet", "--input", JSON.stringify(name), "--instance", name, "--follow"]);
  }

  signal(instance: string, item: string): Promise<string> {
    return this.nodes.ok(["workflow", "signal", `default:${instance}`, "item", "--input", JSON.stringify(item)]);
  }

  async result(instance: string): Promise<unknown> {
    const ended = await this.nodes.json<{ result: unknown }>(["workflow", "result", `default:${instance}`, "--timeout", "60s"]);
    return ended.result;
  }

  async roots(instances: readonly string[]): Promise<Map<string, string>> {
    const roots = new Map<string, string>();
    for (const instance of instances) roots.set(instance, rootOf(await this.nodes.ok(["audit", `default:${instance}`])) ?? "");
    return roots;
  }

  /** Waits until every shard has sealed what it has now, all of these runs among it, and placement is uploaded. */
  async sealedUp(instances: readonly string[] = []): Promise<void> {
    await this.stillness();
    for (const instance of instances) {
      const root = rootOf(await this.nodes.ok(["audit", `default:${instance}`]));
      const stored = () => this.nodes.run(["audit", `default:${instance}`, "--object-store", this.url]);
      await until(async () => rootOf((await stored()).stdout) === root, { what: `${instance} to be sealed`, withinMs: 60_000 });
    }
  }

  private async stillness(): Promise<void> {
    const begun = manifestsIn(this.objects);
    let before = new Map<number, number>();
    await until(
      async () => {
        const now = new Map([...manifestsIn(this.objects)].map(([shard, { number }]) => [shard, number]));
        now.set(0, Number(/-(\d+)\.states$/.exec(filesOf(this.objects, "placement").at(-1) ?? "")?.[1] ?? 0));
        // What is due when a seal begins is in it: two of them hold all that there was when this began.
        const isDone = ([shard, number]: [number, number]) =>
          number === before.get(shard) || number >= (begun.get(shard)?.number ?? 1e9) + 2;
        const areDone = now.size > 1 && [...now].every(isDone);
        before = now;
        if (!areDone) await new Promise((resolve) => setTimeout(resolve, 2500));
        return areDone;
      },
      { withinMs: 60_000, what: "everything to be sealed" },
    );
  }

  /** kill -9 of every node. */
  async kill(): Promise<void> {
    await Promise.all(this.nodes.servers.map((each) => each.kill()));
  }

  /** Rebuilds the cluster on the first node. Returns its new id. */
  async restore(server: Server = this.nodes.at(0)): Promise<string> {
    return (await this.nodes.ok(["cluster", "restore", "--object-store", this.url], { server })).trim();
  }
}
