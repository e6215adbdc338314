/**
 * restate#4566: a resolution was lost when leadership moved, since the old leader's proposal was
 * ordered behind the new leader's announcement and dropped as a duplicate. etcd#13766: members
 * differed after a crash, as the applied index was not saved with the data.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { decodeEvent, decodeSignalReceived, EventKind, fromBytes } from "#proto";
import { HopClient } from "#sdk/client";
import type { Server } from "../../cluster/harness.ts";
import { Nodes } from "../../cluster/nodes.ts";
import { every } from "../../until.ts";

const workflows = `
import { durable, sendSignal, signal } from "@hopskip/runtime";
export const collects = durable(async (count: number) => {
  const seen: string[] = [];
  while (seen.length < count) seen.push(await signal<string>("item"));
  return seen;
});
export const sends = durable(async (o: { to: string; from: string; count: number }) => {
  await Promise.all(Array.from({ length: o.count }, (_, n) => sendSignal(o.to, "item", \`\${o.from}\${n}\`)));
});
export const echo = durable(async (value: unknown) => value);
`;

const signals = 1000;
const senders = ["a", "b"];
const moveEveryMs = 50;
const kills = 4;

let nodes: Nodes;
let client: HopClient;
beforeAll(async () => {
  nodes = new Nodes(3);
  nodes.project({ "workflows.ts": workflows });
  await nodes.form(3);
  await nodes.ok(["shard", "split", "1", "--at", "0x8000000000000000"]);
  await nodes.ok(["deploy", "project/workflows.ts"]);
  await nodes.cluster.worker(nodes.at(0), []);
  client = HopClient.connect({ address: nodes.servers.map(({ grpc }) => grpc), retryMs: 60_000 });
}, 60_000);
afterAll(async () => {
  client.close();
  await nodes[Symbol.asyncDispose]();
});

/** Signals of the run's history, in order. */
async function received(run: string): Promise<string[]> {
  const values: string[] = [];
  for await (const chunk of client.handle(run).history())
    for (const bytes of chunk.event) {
      const event = fromBytes(decodeEvent, bytes);
      if (event.kind !== EventKind.signalReceived) continue;
      const { payload } = fromBytes(decodeSignalReceived, event.payload);
      values.push(JSON.parse(new TextDecoder().decode(payload?.data)) as string);
    }
  return values;
}

test("1,000 signals while both shards' leadership is forced to move every 50 ms: each once, in order per sender (restate#4566)", async () => {
  const receiver = await client.start("collects", signals, { instance: "receiver" });
  let isOver = false;
  let moved = 0;
  // As often as it can be: the next one begins 50 ms after the last one is done.
  const moving = [1, 2].map(async (shard) => {
    for (let turn = 0; !isOver; turn++) {
      try {
        for await (const { finished } of client.cluster.transfer({ shard, to: 1 + ((turn + shard) % 3) })) if (finished) moved++;
      } catch {
        // The node that was asked may itself have lost sight of the leader.
      }
      await every(moveEveryMs);
    }
  });
  const count = signals / senders.length;
  const sent = await Promise.all(
    senders.map((from) => client.start("sends", { to: "receiver", from, count }, { instance: `sender-${from}` })),
  );
  await Promise.all(sent.map((handle) => handle.result()));
  isOver = true;
  await Promise.all(moving);
  const seen = await received(receiver.id);
  expect(seen).toHaveLength(signals);
  for (const from of senders)
    expect(seen.filter((value) => value.startsWith(from))).toEqual(Array.from({ length: count }, (_, n) => `${from}${n}`));
  expect(await receiver.result()).toEqual(seen);
  expect(moved).toBeGreaterThan(1);
}, 100_000);

test("SIGKILL of one node after the other under load: after each its replicas are equal to the others', byte by byte (etcd#13766)", async () => {
  let isOver = false;
  let acknowledged = 0;
  const load = Promise.all(
    Array.from({ length: 4 }, async (_, lane) => {
      for (let n = 0; !isOver; n++) {
        expect(await client.execute("echo", n, { instance: `load-${lane}-${n}` })).toBe(n);
        acknowledged++;
      }
    }),
  );
  for (let n = 0; n < kills; n++) {
    const victim = nodes.at(n % 3) as Server;
    await victim.kill();
    await every(200);
    await victim.restart();
    await nodes.whole(3);
    const { code, stdout, stderr } = await nodes.run(["shard", "verify", "--all"]);
    expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
  }
  isOver = true;
  await load;
  expect(acknowledged).toBeGreaterThan(20);
  // Nothing moves any more: now the states are compared too.
  const verdicts = await nodes.json<{ shard: number; ok: boolean; verdict: string }[]>(["shard", "verify", "--all"]);
  expect(verdicts.map(({ shard, ok, verdict }) => [shard, ok, verdict])).toEqual([0, 1, 2].map((shard) => [shard, true, "equal"]));
}, 100_000);
