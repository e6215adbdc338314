/** Many faults at once, drawn from a seed, against a real server: what was acknowledged holds. */
import { expect, test } from "bun:test";
import { HopError, Prng } from "#core/base";
import { BackedObjectStore } from "../../store/objects/backed-object-store.ts";
import { bytesOf, keysOf, textOf } from "../../store/objects/object-store.suite.ts";
import type { RetryPolicy } from "../../store/objects/retry.ts";
import { S3Backend } from "../../store/objects/s3-backend.ts";
import { FaultProxy, type ProxiedRequest, type ProxyFault } from "./fault-proxy.ts";
import { bucket, credentials, minioServer, onServer, versitygwServer } from "./s3-server.ts";

const policy: RetryPolicy = { triesMax: 4, pauseMsMin: 1, pauseMsMax: 5, tryMs: 1500, bytesPerSecondMin: 1 << 20 };

const chances: readonly (readonly [number, ProxyFault])[] = [
  [0.06, { kind: "status", status: 503, code: "SlowDown" }],
  [0.04, { kind: "status", status: 500, code: "InternalError" }],
  [0.06, { kind: "lost-answer" }],
  [0.05, { kind: "lost-request" }],
  [0.05, { kind: "cut", bytes: 3 }],
  [0.03, { kind: "wrong-body" }],
  [0.04, { kind: "slow", ms: 30 }],
  [0.004, { kind: "silent" }],
];

/** Listings may also be old. */
function drawn(prng: Prng): (request: ProxiedRequest) => ProxyFault | undefined {
  return ({ isList }) => {
    if (isList && prng.chance(0.2)) return { kind: "stale" };
    let at = prng.fraction();
    for (const [chance, fault] of chances) {
      if (at < chance) return fault;
      at -= chance;
    }
    return undefined;
  };
}

/** What a key may hold, by what its only writer was told; undefined = nothing. */
type Possible = readonly (string | undefined)[];

class Lane {
  readonly counts = { certain: 0, unavailable: 0 };
  private readonly own = new Map<string, Possible>();
  private readonly name: string;
  private readonly store: BackedObjectStore;
  private readonly prng: Prng;
  /** Of keys that all lanes put with `ifAbsent`: whose put was acknowledged. */
  private readonly won: Map<string, string>;

  constructor(name: string, store: BackedObjectStore, prng: Prng, won: Map<string, string>) {
    this.name = name;
    this.store = store;
    this.prng = prng;
    this.won = won;
  }

  async step(i: number): Promise<void> {
    const own = `own/${this.name}/${this.prng.below(3)}`;
    const shared = `shared/manifest/${this.prng.below(40)}`;
    const text = `${this.name} ${i}`;
    switch (this.prng.below(6)) {
      case 0:
        return this.write(own, text, () => this.store.put(own, bytesOf(text)));
      case 1:
        return this.write(own, undefined, () => this.store.delete([own]));
      case 2:
        return this.check(own);
      case 3:
        return this.attempt(async () => {
          const known = this.won.get(shared);
          const found = textOf(await this.store.get(shared));
          if (known !== undefined) expect(found).toBe(known);
        });
      default:
        return this.race(shared, text);
    }
  }

  /** What the keys of this lane hold in truth. */
  async checkAll(truth: BackedObjectStore): Promise<void> {
    for (const [target, possible] of this.own) expect(possible).toContain(textOf(await truth.get(target)));
  }

  private async race(target: string, text: string): Promise<void> {
    await this.attempt(async () => {
      const outcome = await this.store.put(target, bytesOf(text), { ifAbsent: true });
      if (outcome === "conflict") return;
      expect(this.won.get(target) ?? text).toBe(text);
      this.won.set(target, text);
    });
  }

  private async write(target: string, value: string | undefined, work: () => Promise<unknown>): Promise<void> {
    const before = this.own.get(target) ?? [undefined];
    this.own.set(target, [...before, value]);
    await this.attempt(async () => {
      await work();
      this.own.set(target, [value]);
    });
  }

  private async check(target: string): Promise<void> {
    await this.attempt(async () => {
      const found = textOf(await this.store.get(target));
      const possible = this.own.get(target) ?? [undefined];
      expect(possible).toContain(found);
      this.own.set(target, [found]);
    });
  }

  private async attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.counts.certain++;
    } catch (error) {
      if (!(error instanceof HopError)) throw error;
      expect(["STORE_UNAVAILABLE", "HASH_MISMATCH"]).toContain(error.reason);
      this.counts.unavailable++;
    }
  }
}

for (const kind of [await versitygwServer(), await minioServer()]) {
  onServer("random faults", kind, (server) => {
    const openAt = (endpoint: string, prefix: string, retry = policy) =>
      new BackedObjectStore(new S3Backend({ bucket, prefix, endpoint, credentials }), { retry });

    test("of 500 calls none is acknowledged and lost, and no key is won twice", async () => {
      await using proxy = await FaultProxy.start(server().endpoint);
      const prng = new Prng(20_260_101);
      proxy.plan = drawn(prng);
      const won = new Map<string, string>();
      const lanes = ["a", "b", "c", "d"].map((name) => new Lane(name, openAt(proxy.endpoint, "mix"), new Prng(name.charCodeAt(0)), won));
      await Promise.all(
        lanes.map(async (lane) => {
          for (let i = 0; i < 125; i++) await lane.step(i);
        }),
      );
      const truth = openAt(server().endpoint, "mix");
      for (const lane of lanes) await lane.checkAll(truth);
      for (const [target, text] of won) expect([target, textOf(await truth.get(target))]).toEqual([target, text]);
      expect(await keysOf(truth, "shared/")).toEqual(expect.arrayContaining([...won.keys()]));
      const certain = lanes.reduce((sum, { counts }) => sum + counts.certain, 0);
      const unavailable = lanes.reduce((sum, { counts }) => sum + counts.unavailable, 0);
      expect(certain + unavailable).toBe(500);
      expect(certain).toBeGreaterThan(400);
      expect(won.size).toBeGreaterThan(30);
      console.log(`${kind.name}: ${certain} calls certain, ${unavailable} unavailable, ${proxy.seen.length} requests`);
    });

    test("of 32 racing writers whose answers get lost one wins and knows it, in each of 10 rounds", async () => {
      await using proxy = await FaultProxy.start(server().endpoint);
      const prng = new Prng(7);
      proxy.plan = () => {
        if (prng.chance(0.25)) return { kind: "lost-answer" };
        if (prng.chance(0.1)) return { kind: "lost-request" };
        return prng.chance(0.1) ? { kind: "status", status: 503, code: "SlowDown" } : undefined;
      };
      const patient = { ...policy, triesMax: 20, tryMs: 20_000 };
      const stores = [openAt(proxy.endpoint, "race", patient), openAt(proxy.endpoint, "race", patient)];
      for (let round = 0; round < 10; round++) {
        const target = `race/round/${round}`;
        const put = async (writer: number) => {
          const store = stores[writer % 2] as BackedObjectStore;
          const outcome = await store.put(target, bytesOf(`writer ${writer}`), { ifAbsent: true });
          return outcome === "stored" ? [`writer ${writer}`] : [];
        };
        const winners = (await Promise.all(Array.from({ length: 32 }, (_, writer) => put(writer)))).flat();
        expect(winners).toEqual([textOf(await openAt(server().endpoint, "race").get(target)) ?? "nobody"]);
      }
    });
  });
}
