/** A node whose process is paused, as by a machine that stops without a word: its connections stay open and say nothing. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { HopClient } from "#sdk/client";
import { every } from "../until.ts";
import type { Server } from "./harness.ts";
import { Nodes } from "./nodes.ts";

/** A client with a call under way is to have left the node by then. */
const leaveMsMax = 2_500;
/** What the answer of another node may take here, where every test of the machine runs at once. */
const answerMsMax = 3_000;

let nodes: Nodes;
/** Leads nothing, so that its silence costs nobody but its clients anything. */
let follower: Server;
const clients: HopClient[] = [];

beforeAll(async () => {
  nodes = new Nodes(3);
  await nodes.form(3);
  const idle = (await nodes.members()).find(({ shardsLed }) => shardsLed === 0);
  follower = await nodes.numbered(idle?.node ?? 0);
}, 60_000);
afterAll(async () => {
  for (const each of clients) each.close();
  await nodes[Symbol.asyncDispose]();
});

/** A client that was given the follower's address alone and has learned the others', and the states its connection went through. */
async function attached(): Promise<{ readonly client: HopClient; readonly states: string[] }> {
  const states: string[] = [];
  const client = HopClient.connect({ address: follower.grpc, retryMs: 30_000, onConnection: (state) => states.push(state) });
  clients.push(client);
  expect(await missing(client)).toBe("RUN_NOT_FOUND");
  await client.cluster.members();
  return { client, states };
}

/** Asks over the session for what there is none of: an answer all the same. */
const missing = (client: HopClient) =>
  client.outcome("default:none").then(
    () => "",
    (error: { readonly reason?: string }) => error.reason,
  );

test("a client with a call under way leaves a node that fell silent within 2.5 s", async () => {
  const [{ client: asking }, { client: calling }] = [await attached(), await attached()];
  follower.process.signal("SIGSTOP");
  try {
    const beganMs = performance.now();
    const [reason, members] = await Promise.all([missing(asking), calling.cluster.members()]);
    expect(performance.now() - beganMs).toBeLessThan(leaveMsMax + answerMsMax);
    expect([reason, members.member.length]).toEqual(["RUN_NOT_FOUND", 3]);
  } finally {
    follower.process.signal("SIGCONT");
  }
});

test("a client stays with a node that is merely busy for a second", async () => {
  const { client, states } = await attached();
  follower.process.signal("SIGSTOP");
  const asked = missing(client);
  await every(1_000);
  follower.process.signal("SIGCONT");
  expect(await asked).toBe("RUN_NOT_FOUND");
  expect(states).toEqual([]);
});
