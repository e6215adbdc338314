/** `hop cluster`, `hop shard` and `hop policy` against the real service, behind which a cluster is made up. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { MemoryCluster, type ServedCluster, serveCluster } from "../../node/service/cluster-control-fixture.ts";
import type { Context, GlobalOptions } from "../context.ts";
import { exit } from "../failure.ts";
import { type Format, Output } from "../output.ts";
import { bufferSink } from "../sink-fixture.ts";
import { bytesText } from "../size.ts";
import { clusterInit, clusterJoin, clusterLeave, clusterMembers, clusterSetReplication, clusterStatus } from "./cluster.ts";
import { clusterRestore } from "./cluster-restore.ts";
import { entryCommands } from "./entry.ts";
import { shardList, shardMerge, shardMove, shardShow, shardSplit, shardVerify } from "./shard.ts";

const control = () => new MemoryCluster();
let cluster = control();
let served: ServedCluster;

beforeEach(async () => {
  cluster = control();
  served = await serveCluster(cluster);
});
afterEach(() => served.stop());

/** Runs a command; `code` is the failure's text where it throws. */
async function hop(
  command: (context: Context, options: GlobalOptions) => Promise<number>,
  options: { format?: Format; terminal?: boolean; server?: string } = {},
) {
  const [out, err] = [bufferSink(options.terminal === true ? { columns: 200 } : undefined), bufferSink()];
  const output = new Output({ format: options.format, color: false, out, err, env: {} });
  const context: Context = { output, interrupt: new AbortController().signal, env: { HOP_SERVER: options.server ?? served.address } };
  try {
    const code = await command(context, { timeout: "5s" });
    return { code, out: out.text(), err: err.text() };
  } catch (error) {
    return { code: output.fail(error), out: out.text(), err: err.text() };
  }
}

describe("hop cluster", () => {
  test("init prints the cluster's id and says what happens next; a second one is a conflict", async () => {
    expect(await hop(clusterInit)).toEqual({
      code: exit.ok,
      out: "hop_0123456789abcdef\n",
      err: "This is node 1 of a new cluster; nodes that have its address as a --seed join by themselves\n",
    });
    const again = await hop(clusterInit);
    expect(again.code).toBe(exit.conflict);
    expect(again.err).toContain("(ALREADY_MEMBER)\n  next: see its cluster with `hop cluster status`");
    // Made by nobody twice: it was asked once a command.
    expect(cluster.asked).toHaveLength(2);
  });

  test("restore tells what is known of each shard, and prints the new cluster's id", async () => {
    const from = (context: Context, options: GlobalOptions) => clusterRestore(context, { ...options, cluster: "hop_00000000000000a1" });
    expect(await hop(from)).toEqual({
      code: exit.ok,
      out: "hop_00000000000000b2\n",
      err: "Shard 1: through record 12, of 2026-02-02T02:40:00.000Z, 7 events\nThis is node 4 of hop_00000000000000b2; nodes that have its address as a --seed join by themselves\n",
    });
    expect(cluster.asked[0]).toStartWith("restore hop_00000000000000a1  by ");
  });

  test("a restore whose server goes away says that nothing came of it", async () => {
    cluster.breaksOff = true;
    const { code, err } = await hop(clusterRestore);
    expect(code).toBe(exit.unavailable);
    expect(err).toContain("it is given up, and the node has nothing of it");
  });

  test("init waits for a server that is about to start", async () => {
    served.stop();
    const begun = hop(clusterInit);
    served = await serveCluster(cluster, undefined, Number(served.address.split(":")[1]));
    expect((await begun).code).toBe(exit.ok);
  });

  test("status of a node that is joining says what it tries", async () => {
    const { code, out } = await hop(clusterStatus);
    expect(code).toBe(exit.ok);
    expect(out).toMatch(
      /^cluster +none yet\nnode +joining, version 1\.2\.3, peers reach it at 10\.0\.0\.2:7072\nseed +node-1 \(10\.0\.0\.1:7072\): connection refused, 2s? ?.*ago\nseed +node-9:7072: not tried yet\n$/,
    );
    expect(JSON.parse((await hop(clusterStatus, { format: "json" })).out)).toMatchObject({ cluster: null, phase: "joining" });
  });

  test("status of a member says all that is not as it should be", async () => {
    cluster.clusterId = "hop_1";
    expect((await hop(clusterStatus)).out).toBe(
      [
        "cluster    hop_1",
        "node       1, member, version 1.2.3, peers reach it at 10.0.0.1:7072",
        "placement  led by node 1, voters 1, 2, 3",
        "nodes      2 live of 3",
        "replicas   3 of each shard wanted",
        "shards     2, 1 under-replicated, 0 without leader",
        "map        epoch 17",
        "versions   1.2.3 on 2 nodes, 1.3.0 on 1 node",
        "under way  shard 2: replica from node 3 to node 4",
        "",
      ].join("\n"),
    );
  });

  test("status waits for a whole cluster where it is to, and not for ever", async () => {
    cluster.clusterId = "hop_1";
    cluster.statusesUntilWhole = 3;
    const waiting = (timeout: string) => hop((context, options) => clusterStatus(context, { ...options, timeout, waitNodes: "3" }));
    expect((await waiting("5s")).out).toContain(
      "nodes      3 live of 3\nreplicas   3 of each shard wanted\nshards     2, 0 under-replicated",
    );
    cluster.statusesUntilWhole = Number.POSITIVE_INFINITY;
    const late = await waiting("300ms");
    expect(late).toMatchObject({ code: exit.unavailable, out: "" });
    // What it still lacked, not that nobody answered.
    expect(late.err).toMatch(/Cannot finish within 300ms: .*(live|under-replicated|leader|replica)/);
  });

  test("set replication takes a count that can be, and status says who set it and why", async () => {
    cluster.clusterId = "hop_1";
    const set = (count: string, format?: Format) =>
      hop((context, options) => clusterSetReplication(context, { ...options, reason: "five machines" }, count), format && { format });
    for (const count of ["0", "2", "9", "many", "3.0"]) {
      expect(await set(count)).toMatchObject({ code: exit.usage, err: expect.stringContaining("want 1, 3, 5 or 7 replicas") });
    }
    expect(cluster.asked).toEqual([]);
    const { code, out, err } = await set("5");
    expect([code, out]).toEqual([exit.ok, "5\n"]);
    expect(err).toMatch(/^version 2, set by .+ at 2026-.+: five machines; see how far it is with `hop cluster status`\n$/);
    expect(cluster.asked).toEqual(["replication 5 because five machines"]);
    expect((await hop(clusterStatus)).out).toMatch(
      /^replicas {3}5 of each shard wanted, 3 with the members there are \(version 2, set by .+ at 2026-.+: five machines\)$/m,
    );
    const json = JSON.parse((await set("5", "json")).out) as object;
    expect(json).toMatchObject({ replication: 5, version: 2, reason: "five machines" });
  });

  test("members lists all pages, and each state in words", async () => {
    cluster.membersTotal = 2500;
    const { out } = await hop(clusterMembers, { format: "jsonl" });
    const rows = out
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { node: number; state: string; unreachableSince: string | null });
    expect([rows.length, rows[0]?.state, rows[2]?.state, rows.at(-1)?.node]).toEqual([2500, "live", "unreachable", 2500]);
    cluster.membersTotal = 3;
    // What the one that is unreachable holds on its disk nobody knows.
    expect((await hop(clusterMembers)).out).toMatch(/^ +2 {2}live +0 +2 +3 MiB .*\n +3 {2}unreachable for 1m 30s +0 +2 +– /m);
    expect((await hop(clusterMembers, { format: "ids" })).out).toBe("1\n2\n3\n");
  });

  test("join and leave follow the change: steps on standard error, the outcome on standard output", async () => {
    expect(await hop((context, options) => clusterLeave(context, options, "3"))).toEqual({
      code: exit.ok,
      out: "leave 3: done\n",
      err: "catching up (1 of 2)\nchanging the members\n",
    });
    const join = await hop((context, options) => clusterJoin(context, options, ["a:1,b", "c:2"]), { format: "json" });
    expect([JSON.parse(join.out), join.err, cluster.asked.at(-1)]).toEqual([
      { text: "join a:1 b c:2: done", done: 0, total: 0, finished: true },
      "",
      "join a:1 b c:2",
    ]);
  });

  test("a change that is not told of to its end ends with 6, and how to see it", async () => {
    cluster.breaksOff = true;
    const { code, err } = await hop((context, options) => clusterLeave(context, options, "3"));
    expect(code).toBe(exit.unavailable);
    expect(err).toContain("what was begun goes on\n  next: see what it still holds with `hop cluster members`");
  });

  test("of several servers the first that answers is asked; where none does, each is named", async () => {
    expect((await hop(clusterStatus, { server: `127.0.0.1:1, ${served.address}` })).code).toBe(exit.ok);
    const { code, err } = await hop(clusterStatus, { server: "127.0.0.1:1,127.0.0.1:2" });
    expect(code).toBe(exit.unavailable);
    expect(err).toContain("Cannot reach the server at 127.0.0.1:1: nothing listens there\nCannot reach the server at 127.0.0.1:2: nothing");
    expect((await hop(clusterStatus, { server: "127.0.0.1:1,nowhere" })).err).toContain('Cannot use HOP_SERVER "nowhere"');
  });
});

describe("hop shard", () => {
  test("list and show", async () => {
    const { out } = await hop(shardList, { terminal: true });
    expect(out.split("\n").slice(0, 3)).toEqual([
      "SHARD  LEADER  REPLICAS  RANGE                                  LAG   SIZE  RATE  UNDER WAY",
      "    1       1  1 3! (4)  0x0000000000000000–0xffffffffffffffff  400  5 MiB  13/s",
      "    2    none  1 3! (4)  0x0000000000000000–0xffffffffffffffff  400  5 MiB  13/s  moving from node 3 to node 4",
    ]);
    const show = await hop((context, options) => shardShow(context, options, "2"));
    expect(show.out).toContain("leader     none\nlog        1200 entries, 5 MiB, 13/s\nunder way  moving from node 3 to node 4\n");
    expect(show.out).toMatch(/ {3}3 {2}voter {4}unreachable {2}1100 {2}100\n {3}4 {2}learner {2}snapshot {6}800 {2}400\n$/);
    expect((await hop((context, options) => shardShow(context, options, "9"))).code).toBe(exit.notFound);
    // Figures that no leader has told are not zero.
    cluster.reportedMs = 0;
    expect((await hop(shardList)).out).toMatch(/^ +1 .*0xffffffffffffffff +– +– +–\s*$/m);
    expect((await hop((context, options) => shardShow(context, options, "1"))).out).toMatch(
      /^log +–\nreported +never$[\s\S]* 1 {2}voter +leader +– +–$/m,
    );
  });

  test("split takes a key as show prints it, and nothing else", async () => {
    const at = (key: string) => hop((context, options) => shardSplit(context, { ...options, at: key }, "1"));
    expect((await at("0x8000000000000000")).code).toBe(exit.ok);
    expect(cluster.asked).toEqual([`split 1 at ${2 ** 47}`]);
    for (const key of ["0x0000000000000000", "0x8000", "0x800000000000ffff", "half"]) expect((await at(key)).code).toBe(exit.usage);
    expect(cluster.asked).toHaveLength(1);
  });

  test("placement can be shown, but not split or merged; what is no number is refused before anybody is asked", async () => {
    for (const [command, doing] of [
      [shardSplit, "split"],
      [shardMerge, "merge"],
    ] as const) {
      const { code, err } = await hop((context, options) => command(context, options, "0"));
      expect([code, err]).toEqual([
        exit.usage,
        `error: Cannot ${doing} shard 0: it is placement, which holds no keys; want a shard of data, from 1\n  next: list the shards with \`hop shard list\`\n`,
      ]);
    }
    for (const text of ["x", "-1", "1.5", "4294967296", ""]) {
      const { code, err } = await hop((context, options) => shardShow(context, options, text));
      expect([code, err]).toEqual([exit.usage, expect.stringContaining(`Cannot use shard ${JSON.stringify(text)}: want its number`)]);
    }
    expect(cluster.asked).toEqual([]);
  });

  test("move names nodes by their numbers", async () => {
    const move = (from: string) => hop((context, options) => shardMove(context, { ...options, from, to: "4" }, "0"));
    expect((await move("3")).out).toBe("move 0 from 3 to 4: done\n");
    expect((await move("node-3")).err).toContain('Cannot use --from "node-3": want its number');
  });

  test("verify ends with 1 where replicas differ", async () => {
    const hash = (byte: number) => new Uint8Array(32).fill(byte);
    const replica = [1, 2].map((node) => ({ node, appliedIndex: 7, stateHash: hash(node === 1 ? 1 : 1), logHash: hash(2) }));
    cluster.verified = [{ shard: 1, index: 7, ok: true, verdict: "2 replicas are equal at index 7", replica }];
    const equal = await hop((context, options) => shardVerify(context, options, "1"));
    expect([equal.code, equal.err]).toEqual([exit.ok, "equal: shard 1: 2 replicas are equal at index 7\n"]);
    expect(equal.out).toContain("    1     2        7  0101010101010101  0202020202020202\n");
    cluster.verified.push({ shard: 2, index: 9, verdict: "node 3 did not answer", replica: [{ node: 3, problem: "unreachable" }] });
    const bad = await hop((context, options) => shardVerify(context, { ...options, all: true }), { format: "json" });
    expect(bad.code).toBe(exit.failed);
    expect((JSON.parse(bad.out) as { ok: boolean }[]).map(({ ok }) => ok)).toEqual([true, false]);
    expect((await hop((context, options) => shardVerify(context, options))).code).toBe(exit.usage);
  });
});

describe("hop policy", () => {
  const policy = entryCommands("policy");

  test("set prints the version, get the value and who set it, list both", async () => {
    const set = (input: string, expect?: string) =>
      hop((context, options) => policy.set(context, { ...options, input, ...(expect === undefined ? {} : { expect }) }, "retention"));
    expect(await set('{"days":3}', "0")).toMatchObject({ code: exit.ok, out: "1\n" });
    expect((await set("{}", "0")).code).toBe(exit.conflict);
    const { out, err } = await hop((context, options) => policy.get(context, options, "retention"));
    expect(out).toBe('{"days":3}\n');
    expect(err).toMatch(/^version 1, changed by .+ at 2026-/);
    const list = JSON.parse((await hop(policy.list, { format: "json" })).out) as object[];
    expect(list).toMatchObject([{ name: "retention", version: 1, value: { days: 3 } }]);
    expect((await hop((context, options) => policy.get(context, options, "none"))).code).toBe(exit.notFound);
    expect((await hop((context, options) => policy.set(context, options, "x"))).code).toBe(exit.usage);
  });
});

test.each([
  [0, "0 B"],
  [999, "999 B"],
  [1000, "0.98 KiB"],
  [1536, "1.5 KiB"],
  [100 * 1024, "100 KiB"],
  [5 << 20, "5 MiB"],
])("%d bytes are shown as %s", (bytes, text) => expect(bytesText(bytes)).toBe(text));
