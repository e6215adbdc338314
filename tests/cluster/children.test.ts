/** Cancellation and children through the compiled executable, with a server that is killed. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Cli } from "./cli-fixture.ts";
import { Cluster } from "./harness.ts";

const family = `
import { durable, signal, sleep, spawn } from "@hopskip/runtime";
export const parcel = durable(async (id: string) => { await signal("go"); return id; });
export const parent = durable(async (policy: "terminate" | "cancel" | "abandon") => {
  const child = spawn(parcel, policy, { instance: \`parcel-\${policy}\`, parentClosePolicy: policy });
  await child.started();
  await signal("end");
});
export const caller = durable(async () => await spawn<string>("parcel", "deployed elsewhere", { instance: "far:p-1" }).result());
`;

let cluster: Cluster;
let cli: Cli;
beforeAll(async () => {
  cluster = new Cluster();
  const folder = join(cluster.folder, "family");
  mkdirSync(folder);
  writeFileSync(join(folder, "family.ts"), family);
  const example = join(import.meta.dir, "../../examples/import");
  const server = await cluster.server({ args: ["--worker", "--activities", join(example, "activities.ts")] });
  cli = new Cli(cluster, server);
  await cli.ok(["deploy", join(example, "import-job.ts")]);
  await cli.ok(["deploy", "family/family.ts"]);
}, 60_000);
afterAll(() => cluster[Symbol.asyncDispose]());

interface Shown {
  readonly status: string;
  readonly parent: { readonly run: string; readonly op: number } | null;
  readonly pending: readonly { readonly waitsFor: string; readonly run: string | null }[];
}
const show = (run: string) => cli.json<Shown>(["workflow", "show", run]);
/** Asks again and again: each time is a process of its own. */
async function until(run: string, isSo: (shown: Shown) => boolean): Promise<void> {
  for (;;) {
    const shown = await cli.run(["workflow", "show", run, "-o", "json"]);
    if (shown.code === 0 && isSo(JSON.parse(shown.stdout) as Shown)) return;
  }
}

test("the import job of the guide runs as written, and cleans up when it is cancelled", async () => {
  const input = (rows: number) => JSON.stringify({ id: "j1", batches: [{ rows: 1 }, { rows }] });
  const whole = await cli.started("importJob", "--input", input(1));
  expect(await cli.ok(["workflow", "result", whole])).toBe("null\n");
  const run = await cli.started("importJob", "--instance", "long", "--input", input(3_600_000));
  await until(run, ({ pending }) => pending.length > 0);
  await cli.ok(["workflow", "cancel", run, "--reason", "wrong file"]);
  const ended = await cli.run(["workflow", "result", run]);
  expect([ended.code, ended.stderr]).toEqual([1, expect.stringContaining("was cancelled: wrong file")]);
  expect(await cli.ok(["audit", run])).toContain("j1 is clean");
}, 60_000);

test("children end with their parent as they were to, over a kill of the server; show names parent and children", async () => {
  for (const policy of ["terminate", "cancel", "abandon"]) {
    await cli.started("parent", "--instance", policy, "--input", JSON.stringify(policy));
    await until(`default:parcel-${policy}`, ({ pending }) => pending.length > 0);
  }
  expect((await show("default:parcel-cancel")).parent).toMatchObject({ run: "default:cancel", op: 1 });
  await until("default:cancel", ({ pending }) => pending.some(({ waitsFor }) => waitsFor === "child default:parcel-cancel to end"));
  expect(await cli.ok(["workflow", "show", "default:parcel-cancel", "-o", "table"])).toContain("default:cancel#1, operation 1");
  await cli.server.kill();
  await cli.server.restart();
  for (const policy of ["terminate", "cancel", "abandon"])
    await cli.ok(["workflow", "terminate", `default:${policy}`, "--reason", "enough"]);
  await until("default:parcel-terminate", ({ status }) => status === "terminated");
  await until("default:parcel-cancel", ({ status }) => status === "cancelled");
  expect((await show("default:parcel-abandon")).status).toBe("running");
  const told = await cli.ok(["audit", "default:parcel-terminate"]);
  expect(told).toContain("its parent, generation 1 of default:terminate, was terminated");
}, 60_000);

test("a child in another namespace runs on what is deployed there, and is refused where nothing is", async () => {
  const refused = await cli.run(["workflow", "result", await cli.started("caller")]);
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("no workflow of that type is deployed in its namespace")]);
}, 60_000);
