/** What strangers and confused peers may send to a node's peer port: it is refused by name, and nothing else suffers. */
import { describe, expect, test } from "bun:test";
import { asShardId, Prng } from "#core/base";
import type { PeerHelloInit } from "#proto";
import { until } from "../../tests/until.ts";
import { peerBounds, peerGate } from "./peer-bounds.ts";
import { addressOfPeer, cluster, node, Pretender, pretendToBe, TestPeer, text, utf8 } from "./peer-fixture.ts";
import { neverSent } from "./peer-net.ts";

/** Node 1, which node 2 is linked to and goes on asking. */
class Town implements Disposable {
  readonly target = new TestPeer(1, { isRemoved: (id) => id === 66 });
  readonly friend = new TestPeer(2);

  constructor() {
    this.target.net.serve("echo", (_, body) => body);
    this.friend.meet(this.target);
    this.target.meet(this.friend);
  }

  async isWell(): Promise<void> {
    expect(text(await this.friend.net.call(node(1), "echo", utf8("still here")))).toBe("still here");
    expect(this.friend.events).toEqual(["up 1"]);
  }

  [Symbol.dispose](): void {
    this.friend[Symbol.dispose]();
    this.target[Symbol.dispose]();
  }
}

const raw = (target: TestPeer, bytes: Uint8Array, closed: () => void) => {
  const { hostname, port } = addressOfPeer(target.net) as { hostname: string; port: number };
  return Bun.connect({
    hostname,
    port,
    socket: { open: (socket) => void socket.write(bytes), data() {}, close: closed, error: closed },
  });
};

const refusals: readonly (readonly [string, PeerHelloInit, string])[] = [
  ["FOREIGN_CLUSTER", { clusterId: "hop_00000000000000bb" }, 'it is of cluster "hop_00000000000000bb", this is hop_00000000000000aa'],
  ["VERSION_APART", { version: "0.3.0" }, "its version is 0.3.0, this is 0.1.0; at most one minor may lie between"],
  ["VERSION_APART", { version: "1.1.0" }, "its version is 1.1.0, this is 0.1.0"],
  ["PROTOCOL_APART", { protocolMin: 2, protocolMax: 3 }, "it speaks versions 2 to 3 of the protocol, this node 1 to 1"],
  ["BAD_HELLO", { protocolMin: 1, version: "new" }, 'its version is "new", want major.minor.patch'],
  ["BAD_HELLO", { life: new Uint8Array(3) }, "its life has 3 bytes, want 16"],
  ["BAD_HELLO", { node: 0 }, "it names a cluster without a node"],
  ["BAD_HELLO", { clusterId: "" }, "or a node without a cluster"],
  ["BAD_HELLO", { advertised: "::1:7072" }, 'its advertised address is "::1:7072", want host:port'],
  ["BAD_HELLO", { advertised: "host" }, 'its advertised address is "host", want host:port'],
  ["WRONG_NODE", { wanted: 3 }, "it wants node 3, this is node 1"],
  ["NODE_REMOVED", { node: 66 }, "node 66 was removed from the cluster"],
  ["NODE_ID_TAKEN", { node: 1 }, "it says that it is node 1 at 127.0.0.1:9009, and that is this node"],
  ["NODE_ID_TAKEN", { node: 2 }, "it says that it is node 2 at 127.0.0.1:9009, and that is linked at 127.0.0.1:"],
];

describe("a hello", () => {
  test.each(refusals)("is refused as %s: %j", async (rule, own, message) => {
    using town = new Town();
    await town.isWell();
    using pretender = new Pretender(town.target.net).hello(own);
    pretender.connection.send({ kind: "call", value: { id: 1, method: "echo", body: utf8("x") } });
    const { value } = await pretender.next("refuse");
    expect(value.rule).toBe(rule);
    expect(value.message).toContain(message);
    await pretender.end();
    expect(pretender.items.map(({ kind }) => kind)).toEqual(["refuse"]);
    expect(town.target.net.lastHeardMs(node(9))).toBe(0);
    await town.isWell();
  });

  test("that is refused again and again is logged once", async () => {
    using town = new Town();
    for (let i = 0; i < 5; i++) {
      using pretender = new Pretender(town.target.net).hello({ clusterId: "hop_00000000000000bb" });
      await pretender.next("refuse");
    }
    expect(town.target.said.map(({ message, fields }) => [message, fields.rule])).toEqual([["A peer was refused", "FOREIGN_CLUSTER"]]);
    expect(town.target.net.figures().refused).toBe(5);
  });

  test("of a good node is welcomed, and may come with the rest in one frame", async () => {
    using town = new Town();
    using pretender = new Pretender(town.target.net).hello({ protocolMax: 9 });
    pretender.connection.send({ kind: "call", value: { id: 1, method: "echo", body: new Uint8Array(2000) } });
    expect((await pretender.next("welcome")).value).toMatchObject({ clusterId: cluster, node: 1, version: "0.1.0", protocol: 1 });
    expect((await pretender.next("answer")).value.body.length).toBe(2000);
  });

  test("of a node that restarted replaces its older link; so does one at the place where the node is known to be", async () => {
    using town = new Town();
    using first = new Pretender(town.target.net).hello();
    await first.next("welcome");
    using restarted = new Pretender(town.target.net).hello({ life: new Uint8Array(16).fill(10) });
    await restarted.next("welcome");
    await first.end();
    using impostor = new Pretender(town.target.net).hello({ life: new Uint8Array(16).fill(11), advertised: "127.0.0.1:9010" });
    expect((await impostor.next("refuse")).value.rule).toBe("NODE_ID_TAKEN");
    town.target.net.setPeers(new Map([[node(9), "127.0.0.1:9010"]]));
    using moved = new Pretender(town.target.net).hello({ life: new Uint8Array(16).fill(12), advertised: "127.0.0.1:9010" });
    await moved.next("welcome");
    await restarted.end();
  });

  test("of a node that is removed later counts no more: its link ends, and the next one is refused", async () => {
    const removed = new Set<number>();
    using target = new TestPeer(1, { isRemoved: (id) => removed.has(id) });
    using pretender = new Pretender(target.net).hello();
    await pretender.next("welcome");
    removed.add(9);
    target.net.setPeers(new Map());
    await pretender.end();
    using again = new Pretender(target.net).hello();
    expect((await again.next("refuse")).value.rule).toBe("NODE_REMOVED");
  });

  test("of a node that advertises loopback is refused by one that others reach", async () => {
    using target = new TestPeer(1, { advertised: (port) => `10.0.0.1:${port}` });
    using pretender = new Pretender(target.net).hello();
    expect((await pretender.next("refuse")).value).toMatchObject({ rule: "LOOPBACK_ADVERTISED" });
    using other = new Pretender(target.net).hello({ advertised: "10.0.0.2:7072" });
    await other.next("welcome");
  });

  test("to a node that is joining is refused, unless it is of another that is joining", async () => {
    using joining = new TestPeer(0);
    using member = new Pretender(joining.net).hello({ wanted: 1 });
    expect((await member.next("refuse")).value).toMatchObject({ rule: "NOT_A_MEMBER" });
    using stranger = new Pretender(joining.net).hello({ clusterId: "", node: 0 });
    expect((await stranger.next("welcome")).value).toMatchObject({ clusterId: "", node: 0 });
    using self = new Pretender(joining.net).hello({ clusterId: "", node: 0, life: joining.net.lifeId });
    expect((await self.next("refuse")).value.rule).toBe("ITSELF");
  });
});

describe("a node that dials", () => {
  test("says which rule it was refused by, and is told", async () => {
    const told: string[] = [];
    using removed = new TestPeer(66, { onRefused: (by, rule) => void told.push(`${by} ${rule}`) });
    using town = new Town();
    removed.meet(town.target);
    const error = await removed.net.call(node(1), "echo", utf8("")).catch((thrown: unknown) => thrown);
    expect(neverSent(error) && error.rule).toBe("NODE_REMOVED");
    expect((error as Error).message).toContain("it refused this node: node 66 was removed");
    expect(told[0]).toBe("1 NODE_REMOVED");
    expect(removed.said).toMatchObject([{ fields: { rule: "NODE_REMOVED" } }]);
  });

  test("speaks only with the node that it means", async () => {
    using a = new TestPeer(1);
    using other = pretendToBe(node(3));
    a.net.setPeers(new Map([[node(2), other.address]]));
    const error = await a.net.call(node(2), "echo", utf8("secret")).catch((thrown: unknown) => thrown);
    expect(neverSent(error) && error.rule).toBe("WRONG_NODE");
    expect(other.items.map(({ kind }) => kind)).toEqual(["hello"]);
  });

  test("gives up one that says nothing, or no welcome", async () => {
    using a = new TestPeer(1);
    const mute = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    const garbling = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: { data: (socket) => void socket.write("HTTP/1.1 400 Bad\r\n\r\n") },
    });
    a.net.setPeers(
      new Map([
        [node(2), `127.0.0.1:${mute.port}`],
        [node(3), `127.0.0.1:${garbling.port}`],
      ]),
    );
    const [silence, garbage] = await Promise.all(
      [2, 3].map((id) => a.net.call(node(id), "echo", utf8("")).catch((thrown: unknown) => thrown)),
    );
    expect(neverSent(silence) && silence.message).toContain(`it said nothing within ${peerBounds.helloMs} ms`);
    expect(neverSent(garbage) && garbage.message).toContain("Cannot read a frame");
    mute.stop(true);
    garbling.stop(true);
  }, 20_000);
});

describe("garbage", () => {
  test("before a hello ends the link, whatever it is", async () => {
    using town = new Town();
    const random = new Prng(3);
    let closed = 0;
    const giant = Uint8Array.of(255, 255, 255, 127, 1, 2);
    const aboveGate = Uint8Array.of(1, 16, 0, 0);
    const inputs = [giant, aboveGate, utf8("GET / HTTP/1.1\r\n\r\n"), Uint8Array.of(2, 0, 0, 0, 10, 200), Uint8Array.of(0, 0, 0, 0)];
    for (let i = 0; i < 40; i++) {
      const bytes = Uint8Array.from({ length: 1 + random.below(60) }, () => random.below(256));
      // A frame of this length, so that its bytes are read as items.
      inputs.push(Uint8Array.of(bytes.length, 0, 0, 0, ...bytes));
    }
    for (const bytes of inputs) await raw(town.target, bytes, () => closed++);
    const answered = inputs.slice(0, 5);
    await until(() => closed >= answered.length, { what: () => `${closed} closed` });
    await town.isWell();
    expect(town.target.net.figures().accepted).toBeLessThanOrEqual(1 + inputs.length);
  });

  test("after a good hello ends that link alone", async () => {
    using town = new Town();
    for (const send of [
      (each: Pretender) => each.hello(),
      (each: Pretender) => each.connection.send({ kind: "welcome", value: {} }),
      (each: Pretender) => each.connection.send({ kind: "answer", value: { id: 1 } }),
      (each: Pretender) => each.connection.send({ kind: "raft", value: { shard: 1, message: Uint8Array.of(10, 99) } }),
      (each: Pretender) => {
        each.connection.send({ kind: "open", value: { id: 1, method: "wait", window: 10 } });
        each.connection.send({ kind: "call", value: { id: 1, method: "wait" } });
      },
    ]) {
      using pretender = new Pretender(town.target.net).hello();
      await pretender.next("welcome");
      town.target.net.serveStream("wait", async function* (_, __, gone) {
        await new Promise((done) => gone.addEventListener("abort", done));
        yield utf8("late");
      });
      send(pretender);
      expect((await pretender.end()).kind).toBe("lost");
    }
    expect(town.target.said.map(({ message }) => message)).toEqual(["A peer's link was cut: it sent what can't be read"]);
    await town.isWell();
  });

  test("a joining node has no say in Raft, and a call to a method for members is refused", async () => {
    using town = new Town();
    const messages: unknown[] = [];
    town.target.net.onRaft = (...each) => void messages.push(each);
    using pretender = new Pretender(town.target.net).hello({ clusterId: "", node: 0 });
    await pretender.next("welcome");
    pretender.connection.send({ kind: "call", value: { id: 1, method: "echo" } });
    expect((await pretender.next("fail")).value).toMatchObject({ id: 1, reason: "UNAUTHENTICATED" });
    pretender.connection.send({ kind: "raftOf", shard: asShardId(1), message: { kind: 1, term: 9 } });
    await pretender.end();
    expect(messages).toEqual([]);
  });
});

describe("bounds", () => {
  test("who says nothing is cut off, and too many of them are dropped as they come", async () => {
    using town = new Town();
    await town.isWell();
    let closed = 0;
    const extra = 20;
    const sockets = Array.from({ length: peerGate.strangersMax + extra }, () => raw(town.target, new Uint8Array(0), () => closed++));
    await Promise.all(sockets);
    await until(() => closed >= extra);
    const startMs = performance.now();
    await town.isWell();
    await until(() => closed === sockets.length);
    expect(performance.now() - startMs).toBeGreaterThan(peerGate.timeoutMs - 1500);
    await town.isWell();
  }, 20_000);

  test("a link carries a bounded number of questions at a time", async () => {
    using town = new Town();
    let asked = 0;
    town.target.net.serve("wait", () => {
      asked++;
      return new Promise(() => {});
    });
    using pretender = new Pretender(town.target.net).hello();
    await pretender.next("welcome");
    for (let id = 1; id <= peerBounds.asksMax + 1; id++) pretender.connection.send({ kind: "call", value: { id, method: "wait" } });
    expect((await pretender.next("fail")).value).toMatchObject({ id: peerBounds.asksMax + 1, reason: "BUFFER_FULL" });
    expect(asked).toBe(peerBounds.asksMax);
  });

  test("answers that a peer does not read fail, and chunks wait for credit", async () => {
    using town = new Town();
    let poured = 0;
    town.target.net.serve("large", () => new Uint8Array(20 << 20));
    town.target.net.serveStream("endless", async function* () {
      for (;;) {
        poured++;
        yield new Uint8Array(100_000);
      }
    });
    using pretender = new Pretender(town.target.net).hello();
    await pretender.next("welcome");
    pretender.connection.send({ kind: "open", value: { id: 1, method: "endless", window: 1_000_000 } });
    await until(() => pretender.items.filter(({ kind }) => kind === "chunk").length === 10);
    for (let i = 0; i < 5; i++) await town.isWell();
    expect(poured).toBe(10);
    pretender.connection.pause();
    for (let id = 2; id <= 8; id++) pretender.connection.send({ kind: "call", value: { id, method: "large" } });
    await town.isWell();
    pretender.connection.resume();
    const failed = await pretender.next("fail");
    expect(failed.value.reason).toBe("STORE_UNAVAILABLE");
    expect(failed.value.message).toContain("wait for the link already");
    await town.isWell();
  });

  test("a peer that sends chunks without credit is cut off", async () => {
    using a = new TestPeer(1);
    using hostile = pretendToBe(node(2), (connection, item) => {
      if (item.kind !== "open") return;
      for (let i = 0; i < 10; i++) connection.send({ kind: "chunk", value: { id: item.value.id, body: new Uint8Array(1000) } });
    });
    a.net.setPeers(new Map([[node(2), hostile.address]]));
    const stream = a.net.stream(node(2), "x", utf8(""), { windowBytes: 2000 })[Symbol.asyncIterator]();
    const reading = async () => {
      for (;;) {
        await stream.next();
        await new Promise((done) => setImmediate(done));
      }
    };
    await expect(reading()).rejects.toThrow("its chunk is none that was asked for");
    await until(() => a.events.includes("down 2"));
  });
});
