/**
 * azure-functions-durable-js#122: changed code was not noticed: wrong data, or a run that was "running" for ever. Each kind of
 * change against the real sandbox is in worker/executor-v8.test.ts; here a run of the compiled server meets them one after another.
 */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Cluster, until } from "#tests/cluster";

const head = 'import { activity, durable, signal, sleep } from "@hopskip/runtime";\n';
const workflow = (body: string) => `${head}export const order = durable(async () => {\n${body}\n});\n`;
const steps = 'const a = await activity("measure", "ab"); await sleep(5); const b = await activity("measure", a + "cd");';
const changes: [string, string, string, string][] = [
  ["swapped", 'await sleep(5); const a = await activity("measure", "ab"); await signal("go");', 'activity "measure"', "a sleep of 5 ms"],
  ["renamed", 'const a = await activity("count", "ab"); await sleep(5); await signal("go");', 'activity "measure"', 'activity "count"'],
  [
    "dropped",
    'const a = await activity("measure", "ab"); const b = await activity("measure", a + "cd"); await signal("go");',
    "a sleep of 5 ms",
    'activity "measure"',
  ],
  [
    "added",
    `const a = await activity("measure", "ab"); await activity("measure", "more"); await sleep(5); await signal("go");`,
    "a sleep of 5 ms",
    'activity "measure" with input "more"',
  ],
  [
    "argued",
    'const a = await activity("measure", "other"); await sleep(5); await signal("go");',
    'activity "measure" with input "ab"',
    'activity "measure" with input "other"',
  ],
];

test("swapped, renamed, dropped, added and other arguments: blocked with both operations named each time, and mended by code that agrees", async () => {
  await using hop = new Cluster();
  const server = await hop.server({ args: ["--worker", "--activities", fileURLToPath(new URL("guest-activities.ts", import.meta.url))] });
  const deploy = async (body: string) => {
    writeFileSync(join(hop.folder, "order.ts"), workflow(body));
    await hop.expectOk(["deploy", "order.ts"], { server });
  };
  interface Shown {
    readonly status: string;
    readonly note?: string;
  }
  const shown = async () => JSON.parse(await hop.expectOk(["workflow", "show", "one", "-o", "json"], { server })) as Shown;
  const blocked = (word: string) =>
    until(
      async () => {
        const now = await shown();
        return now.status === "blocked" && JSON.stringify(now).includes(word) && JSON.stringify(now);
      },
      { withinMs: 60_000, what: `the run to be blocked by ${word}` },
    );
  // A fault that needs no change: it lets the run be moved to other code.
  await deploy(`${steps} await signal("go"); for (;;);`);
  await hop.expectOk(["run", "order", "--instance", "one"], { server });
  await hop.expectOk(["workflow", "signal", "one", "go"], { server });
  await blocked("one");
  for (const [, body, had, asks] of changes) {
    await deploy(body);
    await hop.expectOk(["workflow", "retry", "one", "--newest"], { server });
    const text = (await blocked(JSON.stringify(asks).slice(1, -1))).replaceAll('\\\\"', '"').replaceAll('\\"', '"');
    expect(text).toContain(`has ${had}`);
    expect(text).toContain(asks);
  }
  await deploy(`${steps} await signal("go"); return [a, b];`);
  await hop.expectOk(["workflow", "retry", "one", "--newest"], { server });
  expect(JSON.parse(await hop.expectOk(["workflow", "result", "one"], { server }))).toEqual([2, 3]);
  const events = (JSON.parse(await hop.expectOk(["audit", "one", "-o", "json"], { server })) as { events: { event: string }[] }).events.map(
    ({ event }) => event,
  );
  expect(events.filter((event) => event === "RunBlocked")).toHaveLength(changes.length + 1);
  expect(events.filter((event) => event === "ActivityCompleted")).toHaveLength(2);
}, 120_000);
