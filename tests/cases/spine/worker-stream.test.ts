/**
 * durabletask-python#175: a reset by the peer looked like the worker's own shutdown; its loop ended and the process stayed up
 * doing nothing. What each ending does to tasks is in worker/session.test.ts; here the compiled worker meets a bare server.
 */
import { expect, test } from "bun:test";
import http2, { type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { Prng } from "#core/base";
import { Cluster, until } from "#tests/cluster";

type Ending = (stream: ServerHttp2Stream, session: ServerHttp2Session) => void;

const headers = { ":status": 200, "content-type": "application/grpc" } as const;

const endings: Readonly<Record<string, Ending>> = {
  "RST_STREAM(CANCEL)": (stream) => {
    stream.respond(headers);
    stream.close(http2.constants.NGHTTP2_CANCEL);
  },
  "RST_STREAM(INTERNAL_ERROR)": (stream) => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR),
  "a clean end": (stream) => {
    stream.respond(headers, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end();
  },
  "a status": (stream) => {
    stream.respond({ ...headers, "grpc-status": "1", "grpc-message": "cancelled" }, { endStream: true });
  },
  GOAWAY: (_stream, session) => session.goaway(http2.constants.NGHTTP2_NO_ERROR),
  "GOAWAY and the end of the connection": (_stream, session) => {
    session.goaway(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    session.destroy();
  },
  "no more socket": (_stream, session) => session.destroy(),
};

test("whatever ends a worker's stream, it connects again each time, and ends on its own signal only", async () => {
  const prng = new Prng(42);
  const met: string[] = [];
  const names = Object.keys(endings);
  const server = http2.createServer();
  server.on("session", (session) => session.on("error", () => {}));
  server.on("stream", (stream: ServerHttp2Stream) => {
    stream.on("error", () => {});
    const name = met.length < names.length ? (names[met.length] as string) : (names[prng.below(names.length)] as string);
    met.push(name);
    const session = stream.session as ServerHttp2Session;
    // At random times: at once, or after some of the worker's frames have come.
    if (prng.chance(0.5)) (endings[name] as Ending)(stream, session);
    else stream.once("data", () => (endings[name] as Ending)(stream, session));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  await using hop = new Cluster();
  const worker = hop.launch(["worker", "--server", `127.0.0.1:${(server.address() as AddressInfo).port}`, "--log-format", "json"]);
  await until(() => met.length > names.length || worker.code !== undefined, {
    withinMs: 60_000,
    what: () => `reconnections; there were ${met.join(", ")}\n${worker.stderr}`,
  });
  expect(worker.code).toBeUndefined();
  expect(met.slice(0, names.length)).toEqual(names);
  expect(await worker.stop()).toBe(0);
  server.close();
}, 90_000);
