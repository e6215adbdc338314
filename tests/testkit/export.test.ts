/** Histories of a real server, replayed in the kit: by the same code, and by code that does something else. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { TestEnvironment } from "#sdk/testing";
import { Cluster, type Server } from "#tests/cluster";

const workflow = (second: string) => `
import { activity, durable, sleep } from "@hopskip/runtime";
export const order = durable(async (n: number) => {
  const text = await activity<string>("make", n);
  await sleep(1);
  await activity("${second}", text);
  return text.length;
});
`;

let cluster: Cluster;
let server: Server;
const path = (name: string) => join(cluster.folder, "project", name);

beforeAll(async () => {
  cluster = new Cluster();
  mkdirSync(join(cluster.folder, "project"));
  writeFileSync(path("workflows.ts"), workflow("ship"));
  writeFileSync(path("changed.ts"), workflow("send"));
  writeFileSync(path("activities.ts"), 'export const make = (n: number) => "x".repeat(n);\nexport const ship = () => "shipped";\n');
  server = await cluster.server({ args: ["--worker", "--activities", path("activities.ts")] });
  await cluster.expectOk(["deploy", "project/workflows.ts"], { server });
}, 120_000);

afterAll(() => cluster[Symbol.asyncDispose]());

/** Runs an order, exports its history, and returns where. The second of the payloads is one that is kept apart. */
async function exported(instance: string, size: number): Promise<string> {
  const file = path(`${instance}.json`);
  await cluster.expectOk(["run", "order", "--input", String(size), "--instance", instance, "--follow"], { server });
  await cluster.expectOk(["workflow", "export", `default:${instance}`, "--out", file], { server });
  return file;
}

const environment = (file: string) => TestEnvironment.create({ workflows: path(file) });

test.each([10, 200_000])(
  "a history with a result of %d bytes replays by the code that made it",
  async (size) => {
    const file = await exported(`o${size}`, size);
    await (await environment("workflows.ts")).replay(file);
  },
  60_000,
);

test("changed code is found, with both operations", async () => {
  const env = await environment("changed.ts");
  await expect(env.replay(await exported("o1", 3))).rejects.toThrow(
    'The history of default:o1 does not replay. Operation 3 diverged: history (event 5) has activity "ship" with input "xxx", the code asked for activity "send" with input "xxx"',
  );
}, 60_000);

test("a history goes to standard output too, and one that is not there is refused", async () => {
  const text = await cluster.expectOk(["workflow", "export", "default:o1"], { server });
  expect(JSON.parse(text)).toMatchObject({ format: "hopskip-history/1", run: "default:o1" });
  const { code, stderr } = await cluster.run(["workflow", "export", "default:nobody"], { server });
  expect({ code, stderr }).toEqual({ code: 4, stderr: expect.stringContaining("default:nobody") });
}, 60_000);
