/** The index of runs is lost, and the log that it was made from is sealed and forgotten: it comes back as it was. */
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asShardId } from "#core/base";
import { WalLogStore } from "#store";
import { TestNode } from "../../node/node-fixture.ts";
import { until } from "../until.ts";

/** Archives are looked at eight times a second. */
const sealing = { bytesMax: 20_000, ageMsMax: 50, keptBytes: 0, lookMs: 2 };

class Bench implements AsyncDisposable {
  readonly objects = mkdtempSync(join(tmpdir(), "hop-objects-"));
  hop!: TestNode;

  static async start(): Promise<Bench> {
    const bench = new Bench();
    bench.hop = await TestNode.start({ objectStore: `file://${bench.objects}`, sealing });
    return bench;
  }

  /** Runs of every fate that they have without a worker, in the shards as they are. */
  async work(name: string): Promise<void> {
    const client = this.hop.client();
    const runs = await Promise.all(
      Array.from({ length: 60 }, (_, i) => client.start("hold", "x".repeat(500), { instance: `${name}-${i}` })),
    );
    await Promise.all(runs.slice(0, 30).map((run) => run.terminate(`enough of ${run.id}`)));
    await Promise.all(runs.slice(30, 40).map((run) => run.cancel("changed my mind")));
    const again = await client.start("hold", name, { instance: "in-every-part" });
    await again.terminate(name);
  }

  async change(begin: "split" | "merge"): Promise<void> {
    const { cluster } = this.hop.client();
    const steps = begin === "split" ? cluster.split({ shard: 1, at: 2 ** 47 }) : cluster.merge(1);
    for await (const { finished } of steps) if (finished) return;
  }

  rows(): unknown[] {
    const database = new Database(join(this.hop.dataDir, "visibility.db"), { readonly: true });
    const rows = database.query("SELECT * FROM run ORDER BY run, generation").all();
    database.close();
    return rows;
  }

  /** Of each shard, up to where its log was forgotten. */
  async released(shards: readonly number[]): Promise<number[]> {
    const log = await WalLogStore.open({ dir: join(this.hop.dataDir, "log") });
    const released = shards.map((shard) => log.released(asShardId(shard)));
    await log.close();
    return released;
  }

  loseIndex(): void {
    for (const name of readdirSync(this.hop.dataDir)) if (name.startsWith("visibility.db")) rmSync(join(this.hop.dataDir, name));
  }

  private get folder(): string {
    const cluster = readdirSync(this.objects).find((name) => name.startsWith("hop_")) ?? "none";
    return join(this.objects, cluster, "manifest");
  }

  manifests(shard: number): string[] {
    const { folder } = this;
    return (existsSync(folder) ? readdirSync(folder) : []).filter((name) => name.startsWith(`s${String(shard).padStart(10, "0")}`));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.hop[Symbol.asyncDispose]();
    rmSync(this.objects, { recursive: true, force: true });
  }
}

const listed = async (hop: TestNode) => {
  const { run } = await hop.client().list({ limit: 500 });
  return run.map(({ run: id, generation, status }) => `${id} #${generation} ${status}`).sort();
};

test("the index of runs that is lost comes back as it was, over a split and a merge, though the log is forgotten", async () => {
  await using bench = await Bench.start();
  await bench.hop.deploy();
  await bench.work("a");
  await bench.change("split");
  await bench.work("b");
  await bench.change("merge");
  await bench.work("c");
  await until(() => bench.manifests(2).length > 0, { what: "the merged shard to be sealed", withinMs: 20_000 });
  let before: string[] = [];
  let rows: unknown[] = [];
  let tries = 0;
  const isForgotten = async () => {
    const sealed = bench.manifests(1).length;
    await bench.hop.client().start("hold", 1, { instance: `more-${tries++}` });
    await until(() => bench.manifests(1).length > sealed, { what: "that to be sealed", withinMs: 20_000 });
    before = await listed(bench.hop);
    await bench.hop.node.close();
    rows = bench.rows();
    const released = await bench.released([1, 2]);
    if (released.every((through) => through > 20)) return true;
    await bench.hop.restart();
    return false;
  };
  // The second one is nobody's log any more.
  await until(isForgotten, { what: "both logs to be forgotten", withinMs: 30_000 });
  bench.loseIndex();
  await bench.hop.restart();
  expect(await listed(bench.hop)).toEqual(before);
  await bench.hop.node.close();
  expect(bench.rows()).toEqual(rows);
  expect(rows.length).toBe(183 + tries);
  await bench.hop.restart();
}, 60_000);
