/** What one node may rely on of its links to others, on real sockets. */
import { describe, expect, test } from "bun:test";
import { asShardId, HopError, type NodeId, Prng } from "#core/base";
import { encodePeerItem, encodeRaftMessage, type RaftMessage, type RaftMessageInit, toBytes, Writer } from "#proto";
import { until } from "../../tests/until.ts";
import { peerBounds } from "./peer-bounds.ts";
import { peerCodec } from "./peer-codec.ts";
import { node, pretendToBe, TestPeer, text, utf8 } from "./peer-fixture.ts";
import { neverSent } from "./peer-net.ts";

const shard = asShardId(7);
const append = (index: number, bytes = 100): RaftMessageInit => ({
  kind: 1,
  shard: 7,
  from: 1,
  to: 2,
  term: 3,
  index,
  entries: [{ term: 3, index: index + 1, data: new Uint8Array(bytes).fill(index) }],
});

/** Two members that know each other. */
function pair(): { a: TestPeer; b: TestPeer; [Symbol.dispose](): void } {
  const [a, b] = [new TestPeer(1), new TestPeer(2)];
  a.meet(b);
  b.meet(a);
  return {
    a,
    b,
    [Symbol.dispose]: () => {
      a.net.close();
      b.net.close();
    },
  };
}

const linked = (from: TestPeer, to: number) => until(() => from.net.sendRaft(node(to), shard, append(0)), { what: "a link" });

async function refused(promise: Promise<unknown>): Promise<HopError> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(HopError);
  return error as HopError;
}

describe("Raft messages", () => {
  test("are encoded in place as the generated codec writes them", () => {
    for (const id of [0, 7]) {
      const writer = new Writer();
      peerCodec.encodeOut(writer, { kind: "raftOf", shard: asShardId(id), message: append(5) });
      const message = new Writer();
      encodePeerItem(message, { kind: "raft", value: { shard: id, message: toBytes(encodeRaftMessage, append(5)) } });
      expect(writer.finish()).toEqual(message.finish());
    }
  });

  test("arrive in order, with who sent them and for which shard; the first one makes the link", async () => {
    using peers = pair();
    const { a, b } = peers;
    const got: { from: NodeId; shard: number; message: RaftMessage }[] = [];
    b.net.onRaft = (from, to, message) => void got.push({ from, shard: to, message });
    expect(a.net.sendRaft(node(2), shard, append(0))).toBe(false);
    expect(a.net.lastHeardMs(node(2))).toBe(0);
    await linked(a, 2);
    for (let i = 1; i <= 200; i++) expect(a.net.sendRaft(node(2), asShardId(i), append(i))).toBe(true);
    await until(() => got.length === 201);
    expect(got.map((each) => each.message.index)).toEqual(Array.from({ length: 201 }, (_, i) => i));
    expect(got[200]).toMatchObject({ from: 1, shard: 200, message: { term: 3, entries: [{ index: 201 }] } });
    expect(got[200]?.message.entries[0]?.data).toEqual(new Uint8Array(100).fill(200));
    expect(a.events).toEqual(["up 2"]);
    expect(b.net.lastHeardMs(node(1))).toBeGreaterThan(0);
    await until(() => a.net.lastHeardMs(node(2)) > 0);
  });

  test("to a node without an address, or to oneself, are dropped", () => {
    using a = new TestPeer(1);
    expect(a.net.sendRaft(node(3), shard, append(0))).toBe(false);
    expect(a.net.sendRaft(node(1), shard, append(0))).toBe(false);
  });

  test("are dropped and counted above the bound, while calls have room of their own, up to theirs", async () => {
    using a = new TestPeer(1);
    using deaf = pretendToBe(node(2), (connection, item) => {
      if (item.kind === "raft") connection.pause();
    });
    a.net.setPeers(new Map([[node(2), deaf.address]]));
    await linked(a, 2);
    await until(() => deaf.items.some((item) => item.kind === "raft"));
    let taken = 0;
    while (a.net.sendRaft(node(2), shard, append(taken, 1 << 20)) && taken < 100) taken++;
    // What the kernel took of it, or would, does not wait here.
    expect(taken).toBeGreaterThanOrEqual(8);
    expect(taken).toBeLessThan(20);
    expect(a.net.figures().raftDropped).toBeGreaterThan(0);
    const body = new Uint8Array(30 << 20);
    const first = a.net.call(node(2), "x", body);
    const second = a.net.call(node(2), "x", body);
    const third = await refused(a.net.call(node(2), "x", body));
    expect(third.message).toMatch(/bytes wait for it already, at most 67108864 may$/);
    expect(neverSent(third)).toBe(true);
    a.net.close();
    for (const call of [first, second]) expect(neverSent(await refused(call))).toBe(false);
  });
});

describe("calls", () => {
  test("are answered, many at a time, each with its own answer", async () => {
    using peers = pair();
    const { a, b } = peers;
    b.net.serve("echo", async (from, body) => {
      if (body[0] === 0) await new Promise((done) => setImmediate(done));
      return utf8(`${from}:${text(body)}`);
    });
    const answers = await Promise.all(Array.from({ length: 500 }, (_, i) => a.net.call(node(2), "echo", utf8(`${i}`))));
    expect(answers.map(text)).toEqual(Array.from({ length: 500 }, (_, i) => `1:${i}`));
    const large = new Uint8Array(40 << 20).fill(65);
    b.net.serve("same", (_, body) => body);
    expect((await a.net.call(node(2), "same", large)).length).toBe(large.length);
    const tooLarge = await refused(a.net.call(node(2), "same", new Uint8Array(peerBounds.askBytesMax)));
    expect(tooLarge.reason).toBe("PAYLOAD_TOO_LARGE");
  });

  test("give the caller the refusal of the one who was asked, and INTERNAL for a bug", async () => {
    using peers = pair();
    const { a, b } = peers;
    b.net.serve("stale", () => {
      throw new HopError("STALE_EPOCH", "Cannot take it: the map has changed", { epoch: 12, retryAfterMs: 34 });
    });
    b.net.serve("broken", () => Promise.reject(new TypeError("x is undefined")));
    const stale = await refused(a.net.call(node(2), "stale", utf8("")));
    expect(stale).toMatchObject({ reason: "STALE_EPOCH", message: "Cannot take it: the map has changed", epoch: 12, retryAfterMs: 34 });
    expect(neverSent(stale)).toBe(false);
    expect(await refused(a.net.call(node(2), "broken", utf8("")))).toMatchObject({
      reason: "INTERNAL",
      message: "broken failed: x is undefined",
    });
    expect(b.said.filter(({ message }) => message === "fault")).toMatchObject([{ fields: { where: "peer call broken" } }]);
    expect(await refused(a.net.call(node(2), "nothing", utf8("")))).toMatchObject({ reason: "BAD_REQUEST" });
  });

  test("end at their timeout and at their signal, and the one who was asked is told", async () => {
    using peers = pair();
    const { a, b } = peers;
    const gone: string[] = [];
    b.net.serve("wait", (_, body, signal) => {
      return new Promise((_, reject) => {
        signal.addEventListener("abort", () => {
          gone.push(text(body));
          reject(new Error("told"));
        });
      });
    });
    const late = await refused(a.net.call(node(2), "wait", utf8("timeout"), { timeoutMs: 50 }));
    expect(late).toMatchObject({ reason: "BUDGET_EXPIRED", message: "Cannot wait longer for wait of node 2: 50 ms are over" });
    const controller = new AbortController();
    const call = a.net.call(node(2), "wait", utf8("abort"), { signal: controller.signal });
    controller.abort(new HopError("BAD_REQUEST", "not wanted"));
    expect((await refused(call)).message).toBe("not wanted");
    expect((await refused(a.net.call(node(2), "wait", utf8(""), { signal: controller.signal }))).message).toBe("not wanted");
    await until(() => gone.length === 2);
    expect(gone).toEqual(["timeout", "abort"]);
    expect(b.said).toEqual([]);
  });

  test("to oneself need no link and behave alike", async () => {
    using a = new TestPeer(1);
    a.net.serve("echo", (from, body) => utf8(`${from}:${text(body)}`));
    a.net.serve("never", () => new Promise(() => {}));
    a.net.serveStream("count", async function* () {
      for (let i = 0; i < 3; i++) yield Uint8Array.of(i);
    });
    expect(text(await a.net.call(node(1), "echo", utf8("me")))).toBe("1:me");
    expect(await refused(a.net.call(node(1), "never", utf8(""), { timeoutMs: 20 }))).toMatchObject({ reason: "BUDGET_EXPIRED" });
    expect(await refused(a.net.call(node(1), "none", utf8("")))).toMatchObject({ reason: "BAD_REQUEST" });
    expect((await Array.fromAsync(a.net.stream(node(1), "count", utf8("")))).map((chunk) => chunk[0])).toEqual([0, 1, 2]);
  });

  test("to a node that is not there fail as never sent, at once while the next dial is waited for", async () => {
    using a = new TestPeer(1);
    const free = new TestPeer(2);
    a.meet(free);
    free.net.close();
    const error = await refused(a.net.call(node(2), "echo", utf8("")));
    expect(error).toMatchObject({ reason: "STORE_UNAVAILABLE" });
    expect(neverSent(error)).toBe(true);
    const again = await refused(a.net.call(node(2), "echo", utf8("")));
    expect(again.retryAfterMs).toBeGreaterThan(0);
    expect(again.message).toContain("Cannot reach node 2 at 127.0.0.1:");
    expect(neverSent(await refused(a.net.call(node(8), "echo", utf8(""))))).toBe(true);
    expect(a.events).toEqual(["down 2"]);
  });

  test("that were under way when the link broke fail as perhaps carried out, and the handler hears that nobody waits", async () => {
    using peers = pair();
    const { a, b } = peers;
    const seen = Promise.withResolvers<AbortSignal>();
    b.net.serve("wait", (_, __, gone) => {
      seen.resolve(gone);
      return new Promise(() => {});
    });
    const call = a.net.call(node(2), "wait", utf8(""));
    const gone = await seen.promise;
    expect(gone.aborted).toBe(false);
    a.net.setPeers(new Map());
    const error = await refused(call);
    expect(error.reason).toBe("STORE_UNAVAILABLE");
    expect(neverSent(error)).toBe(false);
    await until(() => gone.aborted);
  });

  test("to an address reach whoever is there", async () => {
    using joining = new TestPeer(0);
    using member = new TestPeer(2);
    member.net.serve("who", (from) => utf8(`${from}`), { forStrangers: true });
    member.net.serve("secret", () => utf8("x"));
    const place = { address: member.net.address };
    expect(text(await joining.net.callAt(place, "who", utf8("")))).toBe("0");
    expect(await refused(joining.net.callAt(place, "secret", utf8("")))).toMatchObject({ reason: "UNAUTHENTICATED" });
    expect(joining.events).toEqual([]);
    joining.net.become({ clusterId: "hop_00000000000000aa", nodeId: node(5) });
    expect(joining.net.self).toBe(node(5));
    expect(text(await joining.net.callAt(place, "who", utf8("")))).toBe("5");
  });
});

describe("streams", () => {
  test("bring every chunk in order, no faster than they are read", async () => {
    using peers = pair();
    const { a, b } = peers;
    const windowBytes = 1 << 20;
    const chunkBytes = 100_000;
    const count = 300;
    let produced = 0;
    b.net.serveStream("numbers", async function* () {
      for (; produced < count; produced++) yield new Uint8Array(chunkBytes).fill(produced);
    });
    let read = 0;
    let ahead = 0;
    for await (const chunk of a.net.stream(node(2), "numbers", utf8(""), { windowBytes })) {
      expect(chunk[chunkBytes - 1]).toBe(read++ & 255);
      await new Promise((done) => setImmediate(done));
      ahead = Math.max(ahead, produced - read);
    }
    expect(read).toBe(count);
    // A window on the way, half of one that is credited at a time, and a chunk on either side.
    expect(ahead).toBeLessThanOrEqual((windowBytes * 1.5) / chunkBytes + 2);
  });

  test("of nothing, of empty chunks, and of an error after chunks end as they should", async () => {
    using peers = pair();
    const { a, b } = peers;
    b.net.serveStream("of", async function* (_, body) {
      for (let i = 0; i < Number(text(body)); i++) yield new Uint8Array(0);
    });
    b.net.serveStream("bad", async function* () {
      yield utf8("first");
      throw new HopError("NO_SPACE", "full");
    });
    expect(await Array.fromAsync(a.net.stream(node(2), "of", utf8("0")))).toEqual([]);
    expect((await Array.fromAsync(a.net.stream(node(2), "of", utf8("5000"), { windowBytes: 1000 }))).length).toBe(5000);
    const chunks: string[] = [];
    const reading = async () => {
      for await (const chunk of a.net.stream(node(2), "bad", utf8(""))) chunks.push(text(chunk));
    };
    expect(await refused(reading())).toMatchObject({ reason: "NO_SPACE", message: "full" });
    expect(chunks).toEqual(["first"]);
    expect(await refused(Array.fromAsync(a.net.stream(node(2), "none", utf8(""))))).toMatchObject({ reason: "BAD_REQUEST" });
  });

  test("that are left, or whose signal aborts, are stopped at their source", async () => {
    using peers = pair();
    const { a, b } = peers;
    const ended: string[] = [];
    b.net.serveStream("endless", async function* (_, body) {
      try {
        for (;;) yield new Uint8Array(1000);
      } finally {
        ended.push(text(body));
      }
    });
    b.net.serveStream("watch", async function* (_, __, gone) {
      yield utf8("view");
      await new Promise((done) => gone.addEventListener("abort", done));
      ended.push("watch");
    });
    for await (const _ of a.net.stream(node(2), "endless", utf8("left"))) break;
    await until(() => ended.includes("left"));
    const controller = new AbortController();
    const watching = async () => {
      for await (const chunk of a.net.stream(node(2), "watch", utf8(""), { signal: controller.signal })) {
        expect(text(chunk)).toBe("view");
        controller.abort(new HopError("BAD_REQUEST", "enough"));
      }
    };
    expect((await refused(watching())).message).toBe("enough");
    await until(() => ended.includes("watch"));
  });

  test("fail when their link breaks, and a slow one holds up neither calls nor Raft", async () => {
    using peers = pair();
    const { a, b } = peers;
    b.net.serve("echo", (_, body) => body);
    b.net.serveStream("endless", async function* () {
      for (;;) yield new Uint8Array(500_000);
    });
    const slow = a.net.stream(node(2), "endless", utf8(""))[Symbol.asyncIterator]();
    await slow.next();
    for (let i = 0; i < 50; i++) expect(text(await a.net.call(node(2), "echo", utf8("quick")))).toBe("quick");
    b.net.close();
    const reading = async () => {
      while ((await slow.next()).done !== true);
    };
    expect((await refused(reading())).reason).toBe("STORE_UNAVAILABLE");
  });
});

describe("links", () => {
  test("come back by themselves after the peer restarted, and each change is told once", async () => {
    using a = new TestPeer(1);
    const b = new TestPeer(2);
    a.meet(b);
    await linked(a, 2);
    const { port } = new URL(`tcp://${b.net.address}`);
    b.net.close();
    await until(() => a.events.length === 2);
    expect(neverSent(await refused(a.net.call(node(2), "echo", utf8(""))))).toBe(true);
    using again = new TestPeer(2, { port: Number(port) });
    again.net.serve("echo", (_, body) => body);
    await until(() => a.events.length === 3);
    expect(a.events).toEqual(["up 2", "down 2", "up 2"]);
    expect(text(await a.net.call(node(2), "echo", utf8("back")))).toBe("back");
  });

  test("follow a node that moved", async () => {
    using a = new TestPeer(1);
    using old = new TestPeer(2);
    a.meet(old);
    await linked(a, 2);
    using moved = new TestPeer(2);
    moved.net.serve("where", () => utf8("here"));
    a.meet(moved);
    expect(text(await a.net.call(node(2), "where", utf8("")))).toBe("here");
    await until(() => old.net.figures().accepted === 0);
  });

  test("are made anew as soon as the peer is heard to be back, without waiting for the next dial", async () => {
    const waits: number[] = [];
    // The longest rest there is.
    using a = new TestPeer(1, { random: () => Number(waits.push(1) > 0) });
    const b = new TestPeer(2);
    const port = Number(new URL(`tcp://${b.net.address}`).port);
    a.meet(b);
    b.net.close();
    await refused(a.net.call(node(2), "echo", utf8("")));
    await until(() => waits.length >= 6);
    using again = new TestPeer(2, { port });
    again.meet(a);
    const startMs = performance.now();
    await linked(again, 1);
    await until(() => a.net.figures().linksUp === 1);
    expect(performance.now() - startMs).toBeLessThan(500);
  });

  test("outlive a pause of this process that is longer than the bound", async () => {
    using peers = pair();
    const { a, b } = peers;
    b.net.serve("echo", (_, body) => body);
    await linked(a, 2);
    await linked(b, 1);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, peerBounds.silenceMs + 300);
    expect(text(await a.net.call(node(2), "echo", utf8("awake")))).toBe("awake");
    expect([...a.events, ...b.events]).toEqual(["up 2", "up 1"]);
  });

  test("to a name with several addresses try each in turn, as the name stands at each dial", async () => {
    using b = new TestPeer(2);
    b.net.serve("echo", (_, body) => body);
    const { port } = new URL(`tcp://${b.net.address}`);
    let resolved = 0;
    const resolve = async () => {
      resolved++;
      return ["127.0.0.9", "127.0.0.1"];
    };
    using a = new TestPeer(1, { resolve });
    a.net.setPeers(new Map([[node(2), `node-2.internal:${port}`]]));
    await linked(a, 2);
    expect(resolved).toBe(2);
    expect(text(await a.net.call(node(2), "echo", utf8("found")))).toBe("found");
  });

  test("carry the beats of idle groups; without any the node is still shown to live", async () => {
    using peers = pair();
    const { a, b } = peers;
    const beats: string[] = [];
    b.net.onBeat = (from, payload) => void beats.push(`${from}:${text(payload)}`);
    await linked(a, 2);
    await until(() => beats.length > 0);
    expect(beats[0]).toBe("1:");
    a.net.beatPayload = (to) => utf8(`to ${to}`);
    const before = beats.length;
    const startMs = performance.now();
    await until(() => beats.length >= before + 6);
    expect(performance.now() - startMs).toBeLessThan(2000);
    expect(beats.at(-1)).toBe("1:to 2");
    expect(a.net.figures()).toMatchObject({ linksUp: 1, raftDropped: expect.any(Number) });
  });

  test("to a peer that says nothing any more are given up after the bound, and made again", async () => {
    using a = new TestPeer(1);
    using silent = pretendToBe(node(2));
    a.net.setPeers(new Map([[node(2), silent.address]]));
    await linked(a, 2);
    const upMs = performance.now();
    const call = a.net.call(node(2), "x", utf8(""));
    const error = await refused(call);
    expect(error.message).toMatch(/Nothing was heard from node 2 at 127.0.0.1:\d+ for 1\d\d\d ms/);
    expect(performance.now() - upMs).toBeGreaterThan(peerBounds.silenceMs - 500);
    await until(() => silent.connections.length >= 2);
  });

  test("survive random bytes of any item that a peer may send", async () => {
    using a = new TestPeer(1);
    const random = new Prng(7);
    using hostile = pretendToBe(node(2), (connection, item) => {
      if (item.kind !== "call") return;
      const kinds = ["answer", "chunk", "end", "fail", "echo"] as const;
      for (let i = 0; i < 5; i++) {
        const kind = kinds[random.below(kinds.length)] as (typeof kinds)[number];
        connection.send({ kind, value: { id: random.below(20), number: 3, body: utf8("x"), reason: "ODD", message: "m" } } as never);
      }
    });
    a.net.setPeers(new Map([[node(2), hostile.address]]));
    const outcomes = new Set<string>();
    for (let i = 0; i < 60; i++) {
      const outcome = await a.net.call(node(2), "x", utf8(""), { timeoutMs: 30 }).then(
        () => "answered",
        (error: HopError) => error.reason,
      );
      outcomes.add(outcome);
      if (outcome === "STORE_UNAVAILABLE") await until(() => a.net.figures().linksUp === 1);
    }
    expect([...outcomes].every((each) => ["answered", "STORE_UNAVAILABLE", "BUDGET_EXPIRED", "INTERNAL"].includes(each))).toBe(true);
    expect(outcomes.size).toBeGreaterThan(1);
  });
});
