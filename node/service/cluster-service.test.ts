import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { HopClient } from "#sdk/client";
import { MemoryCluster, type ServedCluster, serveCluster } from "./cluster-control-fixture.ts";

const control = new MemoryCluster();
let closed: string | undefined;
let served: ServedCluster;
let client: HopClient;

beforeAll(async () => {
  served = await serveCluster(control, () => closed);
  client = HopClient.connect({ address: served.address, retryMs: 100 });
});
afterAll(() => {
  client.close();
  served.stop();
});

const reasonOf = (work: Promise<unknown>) =>
  work.then(
    () => "done",
    (error: { reason?: string; message: string }) => `${error.reason}: ${error.message}`,
  );
async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) out.push(item);
  return out;
}

describe("lists", () => {
  test("300 members page right, also where a page is not full at the end", async () => {
    control.membersTotal = 300;
    const seen: number[] = [];
    let pageToken = "";
    let pages = 0;
    do {
      const page = await client.cluster.members({ limit: 128, pageToken });
      seen.push(...page.member.map(({ node }) => node));
      pageToken = page.nextPageToken;
      pages++;
    } while (pageToken !== "");
    expect([pages, seen.length, new Set(seen).size, seen[0], seen.at(-1)]).toEqual([3, 300, 300, 1, 300]);
    expect((await client.cluster.members()).member).toHaveLength(100);
    control.membersTotal = 3;
  });

  test("a page token goes on after an item that is gone", async () => {
    control.shardsTotal = 5;
    const first = await client.cluster.shards({ limit: 2 });
    expect((await client.cluster.shards({ limit: 10, pageToken: first.nextPageToken })).shard.map(({ shard }) => shard)).toEqual([3, 4, 5]);
    control.shardsTotal = 2;
    expect(await client.cluster.shards({ limit: 10, pageToken: "4" })).toEqual({ shard: [], nextPageToken: "" });
  });

  test.each([
    [{ limit: 1001 }, "want at most 1000"],
    [{ pageToken: "x" }, "which no page ended with"],
    [{ pageToken: "99999999999" }, "which no page ended with"],
  ])("refuse %j", async (request, text) => {
    expect(await reasonOf(client.cluster.members(request))).toMatch(new RegExp(`^BAD_REQUEST: .*${text}`));
  });
});

describe("changes", () => {
  test("tell how far they are, to the end", async () => {
    const steps = await all(client.cluster.move({ shard: 1, from: 2, to: 3 }));
    expect(steps.map(({ text, finished }) => [text, finished])).toEqual([
      ["catching up", false],
      ["changing the members", false],
      ["move 1 from 2 to 3: done", true],
    ]);
  });

  test("are passed on as they were asked", async () => {
    control.asked.length = 0;
    await all(client.cluster.split({ shard: 1 }));
    await all(client.cluster.split({ shard: 1, at: 2 ** 47 }));
    await all(client.cluster.merge(1));
    await all(client.cluster.compact(3));
    await all(client.cluster.transfer({ shard: 0, to: 2 }));
    await all(client.cluster.leave(0));
    await all(client.cluster.join(["node-1", "[::1]:7072"]));
    expect(control.asked).toEqual([
      "split 1 at the middle",
      `split 1 at ${2 ** 47}`,
      "merge 1",
      "compact 3",
      "transfer 0 to 2",
      "leave self",
      "join node-1 [::1]:7072",
    ]);
  });

  test.each<[string, () => AsyncIterable<unknown>]>([
    ['"shard" is 0, which is placement', () => client.cluster.split({ shard: 0 })],
    ['"at" is', () => client.cluster.split({ shard: 1, at: 2 ** 48 })],
    ['"left" is 0', () => client.cluster.merge(0)],
    ['"shard" is 0, which is placement', () => client.cluster.compact(0)],
    ['"to" is node 2, as is "from"', () => client.cluster.move({ shard: 1, from: 2, to: 2 })],
    ['"from" is 0', () => client.cluster.move({ shard: 1, to: 2 })],
    ['"to" is 0', () => client.cluster.transfer({ shard: 1 })],
    ['"seed" is empty', () => client.cluster.join([])],
    ['"seed" holds "a:0"', () => client.cluster.join(["a:0"])],
    ['"seed" holds "http://a"', () => client.cluster.join(["http://a"])],
    ['"all" is set beside "shard" 1', () => client.cluster.verify({ shard: 1, all: true })],
  ])("are refused before they begin where %s", async (text, begin) => {
    control.asked.length = 0;
    expect(await reasonOf(all(begin()))).toMatch(/^BAD_REQUEST: /);
    expect(await reasonOf(all(begin()))).toContain(text);
    expect(control.asked).toEqual([]);
  });
});

describe("entries", () => {
  test("carry their version and who changed them, and a change of an older version is refused", async () => {
    const named = { class: "policy", name: "retention" };
    expect(await client.cluster.setEntry({ ...named, value: Buffer.from("{}"), checked: true })).toBe(1);
    expect(await client.cluster.setEntry({ ...named, value: Buffer.from('{"days":3}') })).toBe(2);
    expect(await reasonOf(client.cluster.setEntry({ ...named, checked: true, expectedVersion: 1 }))).toMatch(/^VERSION_CONFLICT/);
    const entry = await client.cluster.entry(named);
    expect([Buffer.from(entry.value).toString(), entry.version, entry.identity?.subject]).toEqual(['{"days":3}', 2, "anonymous"]);
    expect(await reasonOf(client.cluster.entry({ ...named, name: "other" }))).toMatch(/^ENTRY_NOT_FOUND/);
    expect((await client.cluster.entries({ class: "policy" })).entry.map(({ name }) => name)).toEqual(["retention"]);
    expect((await client.cluster.entries({ class: "namespace" })).entry).toEqual([]);
  });

  test.each([
    [{ class: "lease", name: "a" }, "want one of namespace, policy"],
    [{ class: "policy", name: "" }, "is empty"],
    [{ class: "policy", name: "a", expectedVersion: 3 }, "want both or neither"],
    [{ class: "policy", name: "a", value: Buffer.alloc(300_000) }, "want at most 262144"],
  ])("refuse %j", async (request, text) => {
    expect(await reasonOf(client.cluster.setEntry(request))).toMatch(new RegExp(`^BAD_REQUEST: .*${text}`));
  });
});

test("a node that is joining answers status, init and join, and refuses the rest by saying so", async () => {
  closed = "this node is joining a cluster; ask a member, or `hop cluster init`";
  try {
    expect((await client.cluster.status()).seed[0]?.problem).toBe("connection refused");
    expect(await all(client.cluster.join(["a"]))).toHaveLength(3);
    for (const ask of [() => client.cluster.members(), () => client.cluster.shard(1), () => all(client.cluster.merge(1))])
      expect(await reasonOf(ask())).toMatch(/^STORE_UNAVAILABLE: Cannot take the call: this node is joining a cluster/);
    expect((await client.cluster.init()).node).toBe(1);
    expect(await reasonOf(client.cluster.init())).toMatch(/^ALREADY_MEMBER/);
  } finally {
    closed = undefined;
  }
});
