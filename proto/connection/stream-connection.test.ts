import { expect, test } from "bun:test";
import { fromBytes } from "../codec/messages.ts";
import { decodeWorkerFrame } from "../gen/codec.ts";
import { workerCodec } from "./codecs.ts";
import { Recorder } from "./connection.suite.ts";
import { type Link, StreamConnection } from "./stream-connection.ts";

const bounds = { frameBytesSoft: 100, frameBytesMax: 1000, bufferedBytesMax: 2000 };
const tick = () => new Promise<void>((done) => queueMicrotask(done));

/** A link that is full whenever the test says so. */
class SlowLink implements Link {
  readonly headroom = 0;
  readonly bufferedBytes = 0;
  readonly log: string[] = [];
  isFull = false;

  write(frame: Uint8Array): boolean {
    const numbers = fromBytes(decodeWorkerFrame, frame).item.map((item) => (item.kind === "ack" ? item.value.number : 0));
    this.log.push(`write ${numbers.join()}`);
    return !this.isFull;
  }

  end(): void {
    this.log.push("end");
  }

  destroy(): void {
    this.log.push("destroy");
  }

  pause(): void {}
  resume(): void {}
}

function connect() {
  const seen = new Recorder<unknown>();
  const link = new SlowLink();
  const connection = new StreamConnection(workerCodec, bounds, () => seen);
  connection.attach(link);
  const send = (number: number) => connection.send({ kind: "ack", value: { number } });
  return { seen, link, connection, send };
}

test("what is sent in one tick leaves as one frame", async () => {
  const { link, send } = connect();
  send(1);
  send(2);
  await tick();
  send(3);
  await tick();
  expect(link.log).toEqual(["write 1,2", "write 3"]);
});

test("nothing is written to a full link until it has drained, and the end comes last", async () => {
  const { link, connection, send } = connect();
  link.isFull = true;
  send(1);
  await tick();
  send(2);
  await tick();
  send(3);
  connection.end();
  await tick();
  expect(link.log).toEqual(["write 1"]);
  expect(connection.bufferedBytes).toBeGreaterThan(0);
  link.isFull = false;
  connection.drained();
  expect(link.log).toEqual(["write 1", "write 2,3", "end"]);
});

test("a stream is over once, whatever its link reports afterwards", () => {
  const { seen, link, connection, send } = connect();
  connection.close("first");
  connection.close("second");
  connection.gone({ kind: "lost", message: "third" });
  connection.peerEnded();
  connection.frame(Uint8Array.of(10, 0));
  send(1);
  expect([seen.closing, seen.endedCount, seen.items, link.log]).toEqual([{ kind: "closed", message: "first" }, 0, [], ["destroy"]]);
});
