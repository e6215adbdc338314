/** The client against several servers, of which some go away, hang, or can't serve. */
import { afterEach, describe, expect, test } from "bun:test";
import { createServer, type Server } from "node:net";
import { stays, until } from "../../../tests/until.ts";
import { addressList, Endpoints } from "./endpoints.ts";
import { HopClient, UnavailableError } from "./index.ts";
import { type Answer, ClientTestServer } from "./server-fixture.ts";

const started: Answer = (item) =>
  item.kind === "start" ? { kind: "start", value: { run: `default:${item.value.instance}`, generation: 1 } } : undefined;

const open: { close(): unknown }[] = [];
afterEach(() => {
  for (const each of open.splice(0).reverse()) each.close();
});

async function server(answer: Answer = started): Promise<ClientTestServer> {
  const one = await new ClientTestServer().start();
  one.answer = answer;
  open.push({ close: () => one.stop() });
  return one;
}

function clientOf(address: string | string[], retryMs = 5000): HopClient {
  const client = HopClient.connect({ address, retryMs });
  open.push(client);
  return client;
}

/** Takes connections and says nothing, as a stopped process does. */
async function silent(): Promise<string> {
  const one: Server = createServer(() => {});
  await new Promise<void>((done) => one.listen(0, "127.0.0.1", done));
  open.push(one);
  return `127.0.0.1:${(one.address() as { port: number }).port}`;
}

describe("a client given one address", () => {
  test("survives the loss of that node, and asks again what is safe to ask twice", async () => {
    const [a, b] = [await server(), await server()];
    a.nodes = { address: [a.address, b.address], version: 1 };
    b.nodes = a.nodes;
    const client = clientOf(a.address);
    await client.start("echo");
    a.answer = () => undefined;
    const start = client.start("echo", 1);
    const outcome = client.outcome("default:x");
    await until(() => a.items.length === 3);
    b.answer = (item) =>
      item.kind === "result" ? { kind: "result", value: { outcome: { status: 2 }, generation: 1 } } : started(item, b.sessions[0] as never);
    a.stop();
    // The start that b gets is the one that a got: the same name makes it one run.
    const sent = a.items.filter(({ kind }) => kind === "start").at(-1);
    expect((await start).id).toBe(`default:${sent?.kind === "start" ? sent.value.instance : ""}`);
    expect((await outcome).status).toBe("completed");
    expect((await client.describe("default:x")).summary?.run).toBe(b.address);
  });

  test("stays with it while it works, and learns of changes", async () => {
    const [a, b] = [await server(), await server()];
    const client = clientOf(a.address);
    await client.start("echo");
    a.sessions[0]?.connection.send({ kind: "nodes", value: { address: [b.address, a.address], version: 2 } });
    for (let i = 0; i < 5; i++) await client.start("echo");
    expect([a.items.length, b.items.length]).toEqual([6, 0]);
    a.stop();
    await client.start("echo");
    expect(b.items).toHaveLength(1);
  });

  test("learns of the others by a call too, where it never opened a session", async () => {
    const [a, b] = [await server(), await server()];
    a.nodes = { address: [a.address, b.address], version: 1 };
    const client = clientOf(a.address);
    await client.describe("default:x");
    await until(() => a.calls.some((path) => path.endsWith("ListNodes")));
    a.stop();
    expect((await client.describe("default:x")).summary?.run).toBe(b.address);
  });
});

describe("a client given several addresses", () => {
  test("uses the first that answers", async () => {
    const b = await server();
    const client = clientOf(`127.0.0.1:1, ${b.address}`);
    await client.start("echo");
    expect((await client.describe("default:x")).summary?.run).toBe(b.address);
  });

  test("does not wait long for a node that takes connections and says nothing", async () => {
    const b = await server();
    const client = clientOf([await silent(), b.address]);
    const beganMs = performance.now();
    await client.start("echo");
    expect(performance.now() - beganMs).toBeLessThan(4000);
  });

  test("leaves a node that is there but can't serve", async () => {
    const refusing: Answer = () => ({ kind: "error", value: { reason: "NOT_LEADER", message: "Shard 1 has no leader here" } });
    const [a, b] = [await server(refusing), await server()];
    const client = clientOf([a.address, b.address]);
    await client.start("echo");
    expect(a.items.length).toBeGreaterThan(2);
    expect(b.items).toHaveLength(1);
  });

  test("says what it tried when none can be reached in time", async () => {
    const client = clientOf(["127.0.0.1:1", "127.0.0.1:2"], 150);
    const error = await client.start("echo").catch((cause: unknown) => cause as Error);
    expect(error).toBeInstanceOf(UnavailableError);
    expect((error as Error).message).toMatch(/for 150 ms: tried .*127\.0\.0\.1:[12] \(.*127\.0\.0\.1:[12] \(/);
    const refused = await client.describe("default:x").catch((cause: unknown) => cause as Error);
    expect((refused as Error).message).toMatch(/127\.0\.0\.1:[12]/);
  });

  test("fails a request that is not safe to send twice, at once", async () => {
    const [a, b] = [await server(() => undefined), await server()];
    const client = clientOf([a.address, b.address]);
    const asked = client
      .ask<"query">({ kind: "query", value: { run: "default:x", name: "q" } }, false)
      .catch((error: Error) => error.message);
    await until(() => a.items.length === 1);
    a.stop();
    expect(await asked).toContain(`${a.address} was lost before the reply came`);
    expect(b.items).toHaveLength(0);
  });
});

describe("a client of several nodes", () => {
  const probes = (one: ClientTestServer) => one.calls.filter((path) => path.endsWith("ListNodes")).length;

  test("asks nothing of a node while it waits for nothing", async () => {
    const a = await server();
    const client = clientOf([a.address, "127.0.0.1:1"]);
    await client.start("echo");
    await stays(() => probes(a) === 0, { forMs: 1_500, what: "nothing asked" });
  });

  test("waits as long as it takes at a node that shows that it lives", async () => {
    const [a, b] = [await server(() => undefined), await server()];
    const client = clientOf([a.address, b.address]);
    const waits = client.outcome("default:x").catch(() => {});
    await until(() => a.items.length === 1);
    await stays(() => b.sessions.length === 0, { forMs: 3_000, what: "the first node is asked" });
    expect(probes(a)).toBeGreaterThan(2);
    client.close();
    await waits;
  });
});

describe("Endpoints", () => {
  test("prefers what was given, then what failed longest ago", () => {
    let nowMs = 0;
    const endpoints = new Endpoints(["a:1", "b:1"], () => nowMs);
    open.push(endpoints);
    endpoints.learn(["c:1", "a:1"]);
    const order: string[] = [];
    for (; nowMs < 5; nowMs++) {
      order.push(endpoints.current().address);
      endpoints.failed(endpoints.current().address, "gone");
    }
    expect(order).toEqual(["a:1", "b:1", "c:1", "a:1", "b:1"]);
    expect(endpoints.tried()).toBe("b:1 (gone), a:1 (gone), c:1 (gone)");
    nowMs = 60_000;
    endpoints.failed(endpoints.current().address, "gone");
    expect(endpoints.current().address).toBe("a:1");
  });

  test("a list is told by commas, and an empty one refused", () => {
    expect(addressList(" a:1,[::1]:2 ,a:1,")).toEqual(["a:1", "[::1]:2"]);
    expect(() => addressList(",")).toThrow("no address was given");
  });
});
