import { describe, expect, test } from "bun:test";
import { HopError, Prng } from "#core/base";
import { MemoryBucket, MemoryObjectStore } from "./memory-object-store.ts";
import { checkObjectStore } from "./object-check.ts";
import { ObjectRefusal } from "./object-error.ts";
import { drawRates, type ObjectFault, type ObjectFaults, type ObjectVerb, randomFaults } from "./object-fault.ts";
import { bytesOf, key, keysOf, objectStoreSuite, randomBytes, reasonOf, textOf } from "./object-store.suite.ts";
import { retryPolicyDefault } from "./retry.ts";
import { VirtualTime } from "./virtual-time-fixture.ts";

objectStoreSuite("memory", async () => {
  const bucket = new MemoryBucket();
  const partBytes = 1 << 18;
  return {
    partBytes,
    open: async () => new MemoryObjectStore(bucket, { partBytes, pageCount: 100, retry: { ...retryPolicyDefault, pauseMsMin: 1 } }),
    dispose: async () => {},
  };
});

/** Strikes the next requests of a kind, one fault each. */
function inTurn(verb: ObjectVerb, faults: readonly ObjectFault[]): ObjectFaults {
  const left = [...faults];
  return (request) => (request.verb === verb ? left.shift() : undefined);
}

const always =
  (verb: ObjectVerb, fault: ObjectFault): ObjectFaults =>
  (request) =>
    request.verb === verb ? fault : undefined;

function storeWith(faults: ObjectFaults, bucket = new MemoryBucket()) {
  const time = new VirtualTime();
  return { time, bucket, store: new MemoryObjectStore(bucket, { schedule: time, faults, partBytes: 1000 }) };
}

describe("object storage that goes wrong", () => {
  const put = { ifAbsent: true } as const;

  test("a write that was carried out without an answer is known to have won", () => {
    const { time, store, bucket } = storeWith(inTurn("put", [{ kind: "lost-answer" }, { kind: "lost-answer" }]));
    expect(time.finish(store.put(key("a"), bytesOf("mine"), put))).toBe("stored");
    expect(bucket.objects.get(key("a"))?.version).toBe("1");
  });

  test("a write that came too late is known to have lost", () => {
    const bucket = new MemoryBucket();
    const other = storeWith(() => undefined, bucket);
    const { time, store } = storeWith(inTurn("put", [{ kind: "lost-request" }]), bucket);
    const outcome = store.put(key("a"), bytesOf("mine"), put);
    expect(other.time.finish(other.store.put(key("a"), bytesOf("theirs"), put))).toBe("stored");
    expect(time.finish(outcome)).toBe("conflict");
  });

  test("a write that is carried out after all, later than its second try, changes nothing", () => {
    const { time, store, bucket } = storeWith(inTurn("put", [{ kind: "late", ms: 40_000 }]));
    expect(time.finish(store.put(key("a"), bytesOf("mine"), put))).toBe("stored");
    time.idle(60_000);
    expect(bucket.objects.get(key("a"))?.version).toBe("1");
  });

  test("a write without any answer is unavailable; put again, it is known to have won", () => {
    let isOut = true;
    const { time, store } = storeWith(({ verb }) => (isOut && verb === "put" ? { kind: "lost-answer" } : undefined));
    expect(() => time.finish(store.put(key("a"), bytesOf("mine"), put))).toThrow(/^Cannot put object .* no whole answer within/);
    isOut = false;
    expect(time.finish(store.put(key("a"), bytesOf("mine"), put))).toBe("stored");
  });

  test("a body in parts whose completion had no answer is known to be stored, in one piece", () => {
    const bytes = randomBytes(5500);
    const { time, store, bucket } = storeWith(inTurn("complete", [{ kind: "lost-answer" }]));
    expect(time.finish(store.put(key("a"), bytes, put))).toBe("stored");
    expect(bucket.objects.get(key("a"))).toMatchObject({ bytes, version: "2" });
    expect(bucket.uploads.size).toBe(0);
  });

  test("an upload that fails is never seen, and its parts are given up", () => {
    const { time, store, bucket } = storeWith(always("part", { kind: "refused" }));
    expect(() => time.finish(store.put(key("a"), randomBytes(5500)))).toThrow("the server answered 503 SlowDown (tried 5 times)");
    expect([bucket.objects.size, bucket.uploads.size]).toEqual([0, 0]);
  });

  test("an upload that the server forgot is sent again, and a conflict gives its parts up", () => {
    const bucket = new MemoryBucket();
    let isFirst = true;
    const { time, store } = storeWith(({ verb }) => {
      if (verb === "complete" && isFirst) {
        isFirst = false;
        bucket.uploads.clear();
      }
      return undefined;
    }, bucket);
    const bytes = randomBytes(2500);
    expect(time.finish(store.put(key("a"), bytes, put))).toBe("stored");
    expect(time.finish(store.put(key("a"), randomBytes(2500, 9), put))).toBe("conflict");
    expect([bucket.objects.get(key("a"))?.bytes, bucket.uploads.size]).toEqual([bytes, 0]);
  });

  test("a body that is cut or damaged on its way is asked for again, and never handed out", () => {
    const faults: ObjectFault[] = [{ kind: "cut" }, { kind: "damaged" }, { kind: "cut" }];
    const { time, store, bucket } = storeWith(inTurn("get", faults));
    const sha256 = Bun.SHA256.hash("the right bytes") as Uint8Array;
    bucket.set(key("a"), { bytes: bytesOf("the right bytes"), sha256 }, 0);
    expect(textOf(time.finish(store.get(key("a"), { sha256 })))).toBe("the right bytes");
    bucket.damage(key("a"));
    expect(() => time.finish(store.get(key("a"), { sha256 }))).toThrow(/^Cannot get object .*: the body is not the one that was stored/);
    const range = { begin: 0, end: 99 };
    expect(() => time.finish(store.get(key("a"), { sha256, range }))).toThrow(
      /: SHA-256 is [0-9a-f]{64}, want [0-9a-f]{64} \(tried 5 times\)$/,
    );
  });

  test("while it is away, nothing is missing", async () => {
    const { time, store } = storeWith(() => ({ kind: "refused" }));
    for (const call of [
      () => store.get(key("a")),
      () => store.head(key("a")),
      () => keysOf(store, ""),
      () => store.put(key("a"), bytesOf("a")),
      () => store.delete([key("a")]),
    ]) {
      const reason = reasonOf(call());
      expect(time.finish(reason)).toBe("STORE_UNAVAILABLE");
    }
  });

  test("an old listing shows what was, in order", () => {
    const { time, store } = storeWith(always("list", { kind: "stale", ms: 30_000 }));
    time.idle(60_000);
    time.finish(store.put(key("a"), bytesOf("a")));
    time.idle(20_000);
    time.finish(store.put(key("b"), bytesOf("b")));
    expect(time.finish(keysOf(store, ""))).toEqual([]);
    time.idle(20_000);
    expect(time.finish(keysOf(store, ""))).toEqual([key("a")]);
    time.finish(store.delete([key("a")]));
    time.idle(40_000);
    expect(time.finish(keysOf(store, ""))).toEqual([key("b")]);
  });

  test("a server that ignores conditions does not pass the preflight", () => {
    for (const verb of ["put", "complete"] as const) {
      const { time, store, bucket } = storeWith(always(verb, { kind: "unconditional" }));
      const check = () => time.finish(checkObjectStore(store));
      expect(check).toThrow(ObjectRefusal);
      const where = verb === "put" ? "writes" : "uploads in parts";
      expect(check).toThrow(
        `Cannot use object storage memory:: it ignores conditions on ${where} (If-None-Match), so two nodes could overwrite each other; use a server that does`,
      );
      expect(bucket.objects.size).toBe(0);
    }
  });
});

/** Writers of one seed, each with a clock of its own making: who believes to have won what. */
function swarm(seed: number) {
  const prng = new Prng(seed);
  const time = new VirtualTime(seed);
  const bucket = new MemoryBucket();
  const faults = randomFaults(prng, drawRates(prng));
  const retry = { ...retryPolicyDefault, triesMax: 3 };
  const counts = { stored: 0, conflict: 0, unavailable: 0, reads: 0 };
  const won = new Map<string, string>();
  const errors: string[] = [];
  const open = () => new MemoryObjectStore(bucket, { schedule: time, faults, partBytes: 64, pageCount: 3, retry });

  async function attempt(store: MemoryObjectStore, target: string, text: string): Promise<void> {
    try {
      const outcome = await store.put(target, bytesOf(text), { ifAbsent: true });
      counts[outcome]++;
      const there = textOf(bucket.objects.get(target)?.bytes);
      if (outcome === "stored" && there !== text) errors.push(`${text} was told that it is stored, there is ${there}`);
      if (outcome === "conflict" && there === text) errors.push(`${text} was told of a conflict with itself`);
      if (outcome === "stored" && (won.get(target) ?? text) !== text) errors.push(`${target} was won by ${won.get(target)} and by ${text}`);
      if (outcome === "stored") won.set(target, text);
    } catch (error) {
      if (!(error instanceof HopError) || error.reason !== "STORE_UNAVAILABLE") throw error;
      counts.unavailable++;
    }
  }

  async function read(store: MemoryObjectStore, target: string): Promise<void> {
    const known = won.get(target);
    try {
      const found = textOf(await store.get(target));
      counts.reads++;
      if (known !== undefined && found !== known) errors.push(`${target} holds ${found}, and ${known} was acknowledged`);
    } catch (error) {
      if (!(error instanceof HopError) || !/UNAVAILABLE|MISMATCH/.test(error.reason)) throw error;
    }
  }

  async function work(writer: number): Promise<void> {
    const store = open();
    for (let i = 0; i < 25; i++) {
      const target = key(prng.below(12));
      // Some bodies go in parts.
      if (prng.chance(0.6)) await attempt(store, target, `writer ${writer}, ${i}`.padEnd(prng.chance(0.3) ? 300 : 20, "."));
      else await read(store, target);
    }
  }

  time.finish(Promise.all([0, 1, 2, 3].map(work)).then(() => undefined));
  const endMs = time.nowMs();
  // Whatever is still on its way arrives, and nobody's win is undone by it.
  time.idle(120_000);
  for (const [target, text] of won) {
    const there = textOf(bucket.objects.get(target)?.bytes);
    if (there !== text) errors.push(`${target} holds ${there} at the end, and ${text} was acknowledged`);
  }
  const listed = time.finish(keysOf(new MemoryObjectStore(bucket, { schedule: time, pageCount: 3 }), ""));
  for (const target of won.keys()) if (!listed.includes(target)) errors.push(`${target} is not listed`);
  return { errors, counts, endMs };
}

describe("four writers and a bucket that goes wrong at random", () => {
  test("nothing acknowledged is lost and nothing is won twice, in 300 seeds", () => {
    const total = { stored: 0, conflict: 0, unavailable: 0, reads: 0 };
    for (let seed = 1; seed <= 300; seed++) {
      const { errors, counts } = swarm(seed);
      expect({ seed, errors }).toEqual({ seed, errors: [] });
      for (const each of Object.keys(total) as (keyof typeof total)[]) total[each] += counts[each];
    }
    expect(Math.min(...Object.values(total))).toBeGreaterThan(30);
  });

  test("equal seeds give equal simulations", () => {
    expect(swarm(7)).toEqual(swarm(7));
    expect(swarm(7).endMs).not.toBe(swarm(8).endMs);
  });
});
