/** What every form of a connection must do. The items are those of the dispatch stream. */
import { afterEach, describe, expect, test } from "bun:test";
import type { ServerItem, ServerItemInit, WorkerItem, WorkerItemInit } from "../gen/codec.ts";
import { dispatchCodec, workerCodec } from "./codecs.ts";
import type { Closing, Connection, FrameBounds, ItemCodec, Open, Receiver } from "./connection.ts";

/** A server of one form that test clients can reach. */
export interface Served {
  connect<Out, In>(codec: ItemCodec<Out, In>, open: Open<Out, In>): Connection<Out>;
  /** Ends the server as a kill would. */
  stop(): void;
}

export interface Form {
  serve(bounds: FrameBounds, open: Open<ServerItemInit, WorkerItem>): Promise<Served>;
}

const MiB = 1 << 20;
const bounds: FrameBounds = { frameBytesSoft: MiB, frameBytesMax: 64 * MiB, bufferedBytesMax: 256 * MiB };

/** Keeps what a connection reported and lets a test wait for it. */
export class Recorder<In> implements Receiver<In> {
  readonly items: In[] = [];
  endedCount = 0;
  closing: Closing | undefined;
  onItem: ((item: In) => void) | undefined;
  private readonly waiters: { claim: () => boolean; done: () => void }[] = [];

  item(item: In): void {
    this.items.push(item);
    this.onItem?.(item);
    this.look();
  }

  ended(): void {
    this.endedCount++;
    this.look();
  }

  closed(closing: Closing): void {
    expect(this.closing).toBeUndefined();
    this.closing = closing;
    this.look();
  }

  until(claim: () => boolean): Promise<void> {
    if (claim()) return Promise.resolve();
    return new Promise((done) => this.waiters.push({ claim, done }));
  }

  async end(): Promise<Closing> {
    await this.until(() => this.closing !== undefined);
    return this.closing as Closing;
  }

  private look(): void {
    for (let i = this.waiters.length - 1; i >= 0; i--) {
      const waiter = this.waiters[i];
      if (waiter?.claim()) this.waiters.splice(i, 1)[0]?.done();
    }
  }
}

interface End<Out, In> {
  readonly connection: Connection<Out>;
  readonly seen: Recorder<In>;
}
type ServerEnd = End<ServerItemInit, WorkerItem>;
type ClientEnd = End<WorkerItemInit, ServerItem>;

const ack = (number: number): WorkerItemInit => ({ kind: "ack", value: { number } });
const drop = (handle: number): ServerItemInit => ({ kind: "drop", value: { handle } });
const result = (data: Uint8Array): WorkerItemInit => ({ kind: "taskDone", value: { result: { data } } });
const nextTurn = () => new Promise<void>((done) => setImmediate(done));

/** Numbers of the acks or drops among `items`. */
function numbers(items: readonly (WorkerItem | ServerItem)[]): number[] {
  return items.map((item) => (item.kind === "ack" ? item.value.number : item.kind === "drop" ? item.value.handle : -1));
}

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);

export function connectionSuite(name: string, form: Form): void {
  describe(`${name} connection`, () => {
    let served: Served | undefined;
    let servers: ServerEnd[] = [];
    afterEach(() => {
      served?.stop();
      served = undefined;
      servers = [];
    });

    async function serve(own: FrameBounds = bounds, greet?: (end: ServerEnd) => void): Promise<Served> {
      served = await form.serve(own, (connection) => {
        const end = { connection, seen: new Recorder<WorkerItem>() };
        servers.push(end);
        greet?.(end);
        return end.seen;
      });
      return served;
    }

    function connect(from: Served): ClientEnd {
      const seen = new Recorder<ServerItem>();
      return { connection: from.connect(workerCodec, () => seen), seen };
    }

    /** Both ends of one stream, after a first item each way. */
    async function pair(own: FrameBounds = bounds): Promise<{ client: ClientEnd; server: ServerEnd }> {
      const client = connect(await serve(own, (end) => end.connection.send(drop(0))));
      client.connection.send(ack(0));
      await client.seen.until(() => client.seen.items.length === 1);
      const server = servers.at(-1) as ServerEnd;
      await server.seen.until(() => server.seen.items.length === 1);
      client.seen.items.length = 0;
      server.seen.items.length = 0;
      return { client, server };
    }

    test("what either side sends before the stream is open arrives", async () => {
      const { client, server } = await pair();
      expect(client.seen.closing).toBeUndefined();
      expect(server.seen.closing).toBeUndefined();
    });

    test("100,000 items arrive once and in order, both ways at a time", async () => {
      const { client, server } = await pair();
      for (let i = 1; i <= 100_000; i++) {
        client.connection.send(ack(i));
        server.connection.send(drop(i));
        if (i % 1000 === 0) await nextTurn();
      }
      await server.seen.until(() => server.seen.items.length >= 100_000);
      await client.seen.until(() => client.seen.items.length >= 100_000);
      expect(numbers(server.seen.items)).toEqual(upTo(100_000));
      expect(numbers(client.seen.items)).toEqual(upTo(100_000));
    });

    test("an item's bytes may change as soon as it is sent, and stay as they are once received", async () => {
      const { client, server } = await pair();
      const shared = new Uint8Array(100).fill(1);
      server.connection.send({ kind: "activate", value: { handle: 1, events: [shared] } });
      shared.fill(2);
      await nextTurn();
      server.connection.send({ kind: "activate", value: { handle: 2, events: [shared] } });
      await client.seen.until(() => client.seen.items.length === 2);
      const bytes = client.seen.items.map((item) => (item.kind === "activate" ? [...new Set(item.value.events[0])] : []));
      expect(bytes).toEqual([[1], [2]]);
    });

    test("items of 40 MiB arrive whole, both ways, among small ones", async () => {
      const { client, server } = await pair();
      const big = new Uint8Array(40 * MiB).fill(120);
      client.connection.send(ack(1));
      client.connection.send(result(big));
      client.connection.send(ack(2));
      server.connection.send({ kind: "activate", value: { events: [big] } });
      await server.seen.until(() => server.seen.items.length === 3);
      await client.seen.until(() => client.seen.items.length === 1);
      expect(server.seen.items.map((item) => item.kind)).toEqual(["ack", "taskDone", "ack"]);
      const [, done] = server.seen.items;
      expect(done?.kind === "taskDone" && Buffer.compare(big, done.value.result?.data as Uint8Array)).toBe(0);
      const [activate] = client.seen.items;
      expect(activate?.kind === "activate" && Buffer.compare(big, activate.value.events[0] as Uint8Array)).toBe(0);
    });

    test("an item above the bound is refused at the call, and the stream goes on", async () => {
      const { client, server } = await pair({ ...bounds, frameBytesMax: 1000 });
      client.connection.send(ack(1));
      expect(() => client.connection.send(result(new Uint8Array(1000)))).toThrow(RangeError);
      client.connection.send(ack(2));
      await server.seen.until(() => server.seen.items.length === 2);
      expect(numbers(server.seen.items)).toEqual([1, 2]);
    });

    test("after the client's end the server can still answer; its end finishes the stream", async () => {
      const { client, server } = await pair();
      for (let i = 1; i <= 1000; i++) client.connection.send(ack(i));
      client.connection.end();
      client.connection.send(ack(1001));
      await server.seen.until(() => server.seen.endedCount === 1);
      expect(numbers(server.seen.items)).toEqual(upTo(1000));
      expect(server.seen.closing).toBeUndefined();
      for (let i = 1; i <= 1000; i++) server.connection.send(drop(i));
      server.connection.end();
      expect((await client.seen.end()).kind).toBe("finished");
      expect((await server.seen.end()).kind).toBe("finished");
      expect(numbers(client.seen.items)).toEqual(upTo(1000));
      expect([client.seen.endedCount, server.seen.endedCount]).toEqual([1, 1]);
    });

    test("a server's end finishes the stream though the client did not end it", async () => {
      const { client, server } = await pair();
      server.connection.send(drop(7));
      server.connection.end();
      expect((await client.seen.end()).kind).toBe("finished");
      expect((await server.seen.end()).kind).toBe("finished");
      expect(numbers(client.seen.items)).toEqual([7]);
      expect(client.connection.isOver && server.connection.isOver).toBe(true);
    });

    test("a close by the client is a lost stream to the server", async () => {
      const { client, server } = await pair();
      client.connection.close("enough");
      expect(client.seen.closing).toEqual({ kind: "closed", message: "enough" });
      expect((await server.seen.end()).kind).toBe("lost");
      client.connection.send(ack(1));
      server.connection.send(drop(1));
      expect(server.seen.items).toEqual([]);
    });

    test("a close by the server is a lost stream to the client", async () => {
      const { client, server } = await pair();
      server.connection.close("enough");
      expect(server.seen.closing).toEqual({ kind: "closed", message: "enough" });
      expect((await client.seen.end()).kind).toBe("lost");
    });

    test("a server that dies is a lost stream to the client", async () => {
      const { client } = await pair();
      served?.stop();
      expect((await client.seen.end()).kind).toBe("lost");
    });

    test("a malformed item ends its stream, after the items before it, and no other stream", async () => {
      const from = await serve(bounds, (end) => {
        end.seen.onItem = (item) => item.kind === "ack" && end.connection.send(drop(item.value.number));
      });
      const healthy = connect(from);
      const raw: ItemCodec<Uint8Array, ServerItem> = { encodeOut: (writer, bytes) => writer.raw(bytes), decodeIn: workerCodec.decodeIn };
      const seen = new Recorder<ServerItem>();
      const broken = from.connect(raw, () => seen);
      const goodAck = Uint8Array.of(42, 2, 8, 5);
      const truncated = Uint8Array.of(42, 9, 8, 5);
      for (const bytes of [goodAck, truncated, goodAck]) broken.send(bytes);
      expect((await seen.end()).kind).toBe("lost");
      const server = servers.find((end) => end.seen.closing !== undefined) as ServerEnd;
      expect(server.seen.closing?.kind).toBe("malformed");
      expect(server.seen.closing?.message).toContain("Cannot read");
      expect(numbers(server.seen.items)).toEqual([5]);
      healthy.connection.send(ack(9));
      await healthy.seen.until(() => healthy.seen.items.length === 1);
      expect(numbers(healthy.seen.items)).toEqual([9]);
    });

    test("what a paused peer does not take waits, is counted, and arrives when it reads again", async () => {
      const { client, server } = await pair();
      server.connection.pause();
      const data = new Uint8Array(64 * 1024);
      const sent = 512;
      for (let i = 0; i < sent; i++) {
        client.connection.send(result(data));
        if (i % 8 === 0) await nextTurn();
      }
      expect(client.connection.bufferedBytes).toBeGreaterThan(4 * MiB);
      expect(server.seen.items.length).toBeLessThan(sent);
      server.connection.resume();
      await server.seen.until(() => server.seen.items.length === sent);
      while (client.connection.bufferedBytes > 0) await nextTurn();
      expect(client.seen.closing).toBeUndefined();
    });

    for (const side of ["client", "server"] as const) {
      test(`a peer that takes nothing counts as dead when the ${side} has more waiting than the bound`, async () => {
        const ends = await pair({ ...bounds, bufferedBytesMax: 8 * MiB });
        ends[side === "client" ? "server" : "client"].connection.pause();
        const sender = ends[side];
        const data = new Uint8Array(64 * 1024);
        let sent = 0;
        while (sender.seen.closing === undefined) {
          if (side === "client") ends.client.connection.send(result(data));
          else ends.server.connection.send({ kind: "activate", value: { events: [data] } });
          expect(sender.connection.bufferedBytes).toBeLessThanOrEqual(9 * MiB);
          expect(++sent).toBeLessThan(2000);
          if (sent % 8 === 0) await nextTurn();
        }
        expect(sent).toBeGreaterThanOrEqual(8 * 16);
        expect(sender.seen.closing.kind).toBe("lost");
        expect(sender.seen.closing.message).toContain("takes too little");
        const other = ends[side === "client" ? "server" : "client"];
        other.connection.resume();
        expect((await other.seen.end()).kind).toBe("lost");
      });
    }

    test("a peer that reads never counts as dead, whatever is sent in all", async () => {
      const { client, server } = await pair({ ...bounds, bufferedBytesMax: 8 * MiB });
      const data = new Uint8Array(64 * 1024);
      for (let i = 0; i < 1000; i++) {
        client.connection.send(result(data));
        while (client.connection.bufferedBytes > 4 * MiB) await nextTurn();
      }
      await server.seen.until(() => server.seen.items.length === 1000);
      expect(client.seen.closing).toBeUndefined();
    });

    test("a stream closed as it opens is lost to the client", async () => {
      const from = await serve(bounds, (end) => end.connection.close("not you"));
      const client = connect(from);
      client.connection.send(ack(1));
      expect((await client.seen.end()).kind).toBe("lost");
    });
  });
}

/** The codec that test servers of the suite speak. */
export const suiteServerCodec = dispatchCodec;
