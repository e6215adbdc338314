/** What callers see of each thing that can go wrong between them and a real S3 server. */
import { afterEach, beforeEach, describe, expect, setSystemTime, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BackedObjectStore } from "../../store/objects/backed-object-store.ts";
import { ObjectRefusal, type Problem } from "../../store/objects/object-error.ts";
import { bytesOf, key, keysOf, randomBytes, reasonOf, textOf } from "../../store/objects/object-store.suite.ts";
import type { RetryPolicy } from "../../store/objects/retry.ts";
import { S3Backend, type S3Options } from "../../store/objects/s3-backend.ts";
import { sha256Of } from "../../store/objects/sha256.ts";
import { FaultProxy, type ProxyFault } from "./fault-proxy.ts";
import { bucket, credentials, onServer, versitygwServer } from "./s3-server.ts";

const policy: RetryPolicy = { triesMax: 4, pauseMsMin: 1, pauseMsMax: 10, tryMs: 3000, bytesPerSecondMin: 1 << 20 };
const partBytes = 5 << 20;
const ifAbsent = { ifAbsent: true } as const;

onServer("a network that goes wrong", await versitygwServer(), (server) => {
  let proxy: FaultProxy;
  let store: BackedObjectStore;
  let direct: BackedObjectStore;
  let prefixes = 0;
  let prefix = "";
  const opened: BackedObjectStore[] = [];

  function openAt(endpoint: string, options: Partial<S3Options> & { retry?: RetryPolicy } = {}): BackedObjectStore {
    const place = { bucket, prefix, endpoint, credentials, partBytes, thresholdBytes: partBytes, ...options };
    const made = new BackedObjectStore(new S3Backend(place), { retry: options.retry ?? policy });
    opened.push(made);
    return made;
  }

  beforeEach(async () => {
    prefix = `case-${++prefixes}`;
    proxy = await FaultProxy.start(server().endpoint);
    store = openAt(proxy.endpoint);
    direct = openAt(server().endpoint);
  });
  afterEach(async () => {
    setSystemTime();
    for (const each of opened.splice(0)) await each.close();
    await proxy[Symbol.asyncDispose]();
  });

  const always = (fault: ProxyFault) => {
    proxy.plan = () => fault;
  };
  const calls: readonly (readonly [string, () => Promise<unknown>])[] = [
    ["put", () => store.put(key("x"), bytesOf("x"))],
    ["put with ifAbsent", () => store.put(key("x"), bytesOf("x"), ifAbsent)],
    ["get", () => store.get(key("x"))],
    ["get of a range", () => store.get(key("x"), { range: { begin: 0, end: 1 } })],
    ["head", () => store.head(key("x"))],
    ["list", () => keysOf(store, "")],
    ["delete", () => store.delete([key("x")])],
  ];

  /** Every call rejects with this reason, and none says that something is missing. */
  async function expectOfAll(reason: string, tries: number): Promise<void> {
    for (const [name, call] of calls) {
      proxy.seen.length = 0;
      expect([name, await reasonOf(call())]).toEqual([name, reason]);
      expect([name, proxy.seen.length]).toEqual([name, tries]);
    }
  }

  async function refusalOf(call: () => Promise<unknown>): Promise<ObjectRefusal> {
    const error = await call().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ObjectRefusal);
    return error as ObjectRefusal;
  }

  test("503 is tried again, and lasting 503 is unavailable", async () => {
    const slowDown: ProxyFault = { kind: "status", status: 503, code: "SlowDown", message: "Please reduce your request rate" };
    proxy.strike(slowDown, slowDown, slowDown);
    expect(await store.put(key("a"), bytesOf("a"), ifAbsent)).toBe("stored");
    expect(proxy.seen.length).toBe(4);
    always(slowDown);
    await expectOfAll("STORE_UNAVAILABLE", 4);
    await expect(store.get(key("a"))).rejects.toThrow(
      /^Cannot get object shard-1\/segments\/a from s3:.*: the server answered 503 SlowDown: Please reduce your request rate.* \(tried 4 times\)$/,
    );
  });

  test("an answer that comes too late is not waited for", async () => {
    store = openAt(proxy.endpoint, { retry: { ...policy, tryMs: 500 } });
    await store.put(key("a"), bytesOf("a"));
    proxy.strike({ kind: "slow", ms: 2000 });
    expect(textOf(await store.get(key("a")))).toBe("a");
    proxy.strike({ kind: "silent" });
    expect(await store.put(key("b"), bytesOf("b"), ifAbsent)).toBe("stored");
    always({ kind: "silent" });
    await expect(store.get(key("a"))).rejects.toThrow(/: there was no whole answer within 500 ms \(tried 4 times\)$/);
  });

  test("a body that is cut is read again, at any byte", async () => {
    const bytes = randomBytes(20_000);
    await direct.put(key("a"), bytes);
    for (const at of [0, 1, 9999, 19_999]) {
      proxy.strike({ kind: "cut", bytes: at });
      expect(await store.get(key("a"))).toEqual(bytes);
    }
    always({ kind: "cut", bytes: 19_999 });
    expect(await reasonOf(store.get(key("a")))).toBe("STORE_UNAVAILABLE");
    expect(await reasonOf(store.get(key("a"), { range: { begin: 0, end: 20_000 } }))).toBe("STORE_UNAVAILABLE");
  });

  test("a download whose connection breaks goes on with the piece that is missing", async () => {
    const bytes = randomBytes(1_000_000);
    await direct.put(key("a"), bytes);
    proxy.strike(undefined, { kind: "cut", bytes: 50_000 }, { kind: "lost-answer" });
    const pieces: Uint8Array[] = [];
    const take = (piece: Uint8Array) => void pieces.push(piece);
    const size = await store.download(key("a"), take, { chunkBytes: 250_000, sha256: await sha256Of(bytes) });
    expect([size, Buffer.concat(pieces).equals(bytes), proxy.seen.length]).toEqual([1_000_000, true, 6]);
  });

  test("a body that is another one is never handed out", async () => {
    const bytes = randomBytes(5000);
    const sha256 = await sha256Of(bytes);
    await direct.put(key("a"), bytes);
    proxy.strike({ kind: "wrong-body" }, { kind: "wrong-body" });
    expect(await store.get(key("a"), { sha256 })).toEqual(bytes);
    always({ kind: "wrong-body" });
    expect(await reasonOf(store.get(key("a"), { sha256 }))).toBe("HASH_MISMATCH");
    expect(await reasonOf(store.get(key("a"), { sha256, range: { begin: 0, end: 5000 } }))).toBe("HASH_MISMATCH");
    expect(await reasonOf(store.download(key("a"), () => {}, { sha256 }))).toBe("HASH_MISMATCH");
    // Without a hash of the caller's, the checksum that the server keeps is compared.
    expect(await reasonOf(store.get(key("a")))).toBe("HASH_MISMATCH");
  });

  /** The next request meets a fault, and before its second try a rival has been there. */
  function strikeWithRival(fault: ProxyFault, order: "before" | "after"): void {
    let tries = 0;
    proxy.plan = async () => {
      tries++;
      if (tries === (order === "before" ? 1 : 2)) await direct.put(key("a"), bytesOf("theirs"), ifAbsent);
      return tries === 1 ? fault : undefined;
    };
  }

  test("a write that was carried out without an answer has won, though a rival comes before it is asked for again", async () => {
    strikeWithRival({ kind: "lost-answer" }, "after");
    expect(await store.put(key("a"), bytesOf("mine"), ifAbsent)).toBe("stored");
    expect(textOf(await direct.get(key("a")))).toBe("mine");
  });

  test("a write that was not carried out has lost to a rival who came before its second try", async () => {
    strikeWithRival({ kind: "lost-request" }, "after");
    expect(await store.put(key("a"), bytesOf("mine"), ifAbsent)).toBe("conflict");
    expect(textOf(await direct.get(key("a")))).toBe("theirs");
  });

  test("a write that lost has lost also where the answer that said so did not come", async () => {
    strikeWithRival({ kind: "lost-answer" }, "before");
    expect(await store.put(key("a"), bytesOf("mine"), ifAbsent)).toBe("conflict");
    expect(textOf(await direct.get(key("a")))).toBe("theirs");
  });

  test("a put without any answer is unavailable; put again, it is known to have won", async () => {
    always({ kind: "lost-answer" });
    expect(await reasonOf(store.put(key("a"), bytesOf("mine"), ifAbsent))).toBe("STORE_UNAVAILABLE");
    proxy.plan = () => undefined;
    expect(await store.put(key("a"), bytesOf("mine"), ifAbsent)).toBe("stored");
    expect(await store.put(key("a"), bytesOf("other"), ifAbsent)).toBe("conflict");
  });

  test("an upload in parts outlives a lost answer at each of its requests, and is stored once", async () => {
    const bytes = randomBytes(partBytes * 2 + 1000);
    for (let struck = 0; struck < 5; struck++) {
      let at = 0;
      proxy.plan = () => (at++ === struck ? { kind: "lost-answer" } : undefined);
      const target = key(`big-${struck}`);
      expect(await store.put(target, bytes, ifAbsent)).toBe("stored");
      expect(Buffer.compare((await direct.get(target)) as Uint8Array, bytes)).toBe(0);
    }
  });

  test("an upload in parts that fails is seen by nobody, and gives its parts up", async () => {
    proxy.plan = ({ path }) => (path.includes("partNumber=2") ? { kind: "status", status: 500, code: "InternalError" } : undefined);
    expect(await reasonOf(store.put(key("big"), randomBytes(partBytes * 2), ifAbsent))).toBe("STORE_UNAVAILABLE");
    expect(await direct.head(key("big"))).toBeUndefined();
    expect(await keysOf(direct, "")).toEqual([]);
    expect(proxy.seen.at(-1)).toMatch(/^DELETE .*uploadId=/);
  });

  test("an old listing leaves out what is new, and head does not", async () => {
    await store.put(key("a"), bytesOf("a"));
    expect(await keysOf(store, "")).toEqual([key("a")]);
    await store.put(key("b"), bytesOf("b"));
    await store.delete([key("a")]);
    proxy.plan = ({ isList }) => (isList ? { kind: "stale" } : undefined);
    expect(await keysOf(store, "")).toEqual([key("a")]);
    expect([await store.head(key("a")), (await store.head(key("b")))?.bytes]).toEqual([undefined, 1]);
    proxy.plan = () => undefined;
    expect(await keysOf(store, "")).toEqual([key("b")]);
  });

  test("a listing that is cut is never taken for a shorter one", async () => {
    const names = Array.from({ length: 30 }, (_, i) => key(String(i).padStart(2, "0")));
    for (const each of names) await direct.put(each, bytesOf("x"));
    for (const at of [0, 300, 1500, 3000]) {
      proxy.strike({ kind: "cut", bytes: at });
      expect(await keysOf(store, "")).toEqual(names);
    }
    always({ kind: "cut", bytes: 1500 });
    expect(await reasonOf(keysOf(store, ""))).toBe("STORE_UNAVAILABLE");
  });

  test("a page that some proxy made up is no answer, and no absence", async () => {
    const page = "<html><body><h1>It works!</h1></body></html>";
    always({ kind: "answer", status: 404, body: page });
    for (const call of [() => store.get(key("a")), () => store.head(key("a")), () => keysOf(store, "")]) {
      expect(await reasonOf(call())).toBe("STORE_UNAVAILABLE");
    }
    always({ kind: "answer", status: 200, body: page });
    expect(await reasonOf(keysOf(store, ""))).toBe("STORE_UNAVAILABLE");
    expect(await reasonOf(store.get(key("a"), { range: { begin: 0, end: 9 } }))).toBe("STORE_UNAVAILABLE");
  });

  test("a clock that is hours wrong is said, at the first try", async () => {
    setSystemTime(new Date(Date.now() + 3 * 3600_000));
    const refusal = await refusalOf(() => store.put(key("a"), bytesOf("a")));
    expect([refusal.problem, refusal.message]).toEqual(["clock", expect.stringContaining("set this machine's clock")]);
    expect(proxy.seen.length).toBe(1);
    // The SDK has not put it right behind everybody's back.
    expect((await refusalOf(() => store.get(key("a")))).problem).toBe("clock");
    setSystemTime();
    expect(await store.put(key("a"), bytesOf("a"))).toBe("stored");
  });

  const refusals: readonly (readonly [string, number, Problem, RegExp])[] = [
    ["ExpiredToken", 400, "expired", /get new temporary credentials/],
    ["AccessDenied", 403, "forbidden", /let these credentials do s3:GetObject/],
    ["NoSuchBucket", 404, "no-bucket", /make the bucket, or correct its name/],
    ["PermanentRedirect", 301, "region", /name the bucket's region/],
    ["NotImplemented", 501, "unsupported", /use a server that can do this/],
    ["EntityTooLarge", 400, "rejected", /the server answered 400 EntityTooLarge/],
  ];
  test.each(refusals)("%s is not tried again, and says what to do", async (code, status, problem, says) => {
    always({ kind: "status", status, code });
    for (const [name, call] of calls.filter(([each]) => each !== "head")) {
      proxy.seen.length = 0;
      const refusal = await refusalOf(call);
      expect([name, refusal.problem, refusal.message, proxy.seen.length]).toEqual([name, problem, expect.stringMatching(says), 1]);
    }
    // HEAD has no body that could say which it is, so it is asked for by a GET.
    expect((await refusalOf(() => store.head(key("x")))).problem).toBe(problem);
  });

  test("wrong credentials and a missing bucket are told apart, on every call", async () => {
    const cases: readonly (readonly [Problem, Partial<S3Options>])[] = [
      ["credentials", { credentials: { ...credentials, secretAccessKey: "wrong" } }],
      ["credentials", { credentials: { ...credentials, accessKeyId: "nobody" } }],
      ["no-bucket", { bucket: "no-such-bucket" }],
    ];
    for (const [problem, options] of cases) {
      store = openAt(server().endpoint, options);
      for (const [name, call] of calls) expect([name, (await refusalOf(call)).problem]).toEqual([name, problem]);
    }
  });

  test("a server that is not there is unavailable; when it is back, everything is", async () => {
    await store.put(key("a"), bytesOf("a"), ifAbsent);
    await server().kill();
    for (const [name, call] of [...calls, ["preflight", () => direct.get(key("a"))] as const]) {
      expect([name, await reasonOf(call())]).toEqual([name, "STORE_UNAVAILABLE"]);
    }
    await server().up();
    expect(textOf(await direct.get(key("a")))).toBe("a");
    expect(await store.put(key("a"), bytesOf("a"), ifAbsent)).toBe("stored");
  });

  describe("opened by its URL, with the environment's credentials", () => {
    async function run(env: Record<string, string>): Promise<unknown> {
      const home = mkdtempSync(join(tmpdir(), "hop-home-"));
      try {
        const url = `s3://${bucket}/${prefix}?endpoint=${encodeURIComponent(server().endpoint)}&path-style=true&storage-class=STANDARD`;
        const plain = { PATH: process.env.PATH ?? "", HOME: home, AWS_EC2_METADATA_DISABLED: "true" };
        const command = [process.execPath, join(import.meta.dir, "store-fixture.ts"), url];
        const child = Bun.spawn(command, { env: { ...plain, ...env }, stdout: "pipe", stderr: "pipe" });
        const [said, complaint] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
        expect([await child.exited, complaint]).toEqual([0, ""]);
        return JSON.parse(said);
      } finally {
        rmSync(home, { recursive: true, force: true });
      }
    }

    test("passes the preflight, and has loaded the SDK when it was first used", async () => {
      const keys = { AWS_ACCESS_KEY_ID: credentials.accessKeyId, AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey };
      expect(await run(keys)).toEqual({ ok: true, atOpen: 0, loaded: true });
    });

    test("says how to give it credentials where there are none", async () => {
      const message = expect.stringContaining("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
      expect(await run({})).toEqual({ ok: false, problem: "credentials", message });
    });
  });
});
