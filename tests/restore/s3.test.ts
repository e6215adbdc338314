/** A cluster that had split and merged is rebuilt from a real S3 server, through a proxy that does many things wrong. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { ProxiedRequest, ProxyFault } from "../objects/fault-proxy.ts";
import { onServer, versitygwServer } from "../objects/s3-server.ts";
import { until } from "../until.ts";
import { manifestsIn, SealingNodes } from "./restore-fixture.ts";
import { knowCredentials, S3Place } from "./s3-place.ts";

const named = (letter: string) => Array.from({ length: 2 }, (_, i) => `${letter}${i}`);
const [early, apart, late] = [named("r"), named("s"), named("t")];
const all = [...early, ...apart, ...late];

knowCredentials();

/** Faults that are over when the request comes again. */
const faults: readonly ((request: ProxiedRequest) => ProxyFault)[] = [
  () => ({ kind: "status", status: 503, code: "SlowDown" }),
  () => ({ kind: "lost-request" }),
  () => ({ kind: "lost-answer" }),
  () => ({ kind: "status", status: 500, code: "InternalError" }),
  () => ({ kind: "slow", ms: 200 }),
  ({ method }) => (method === "GET" ? { kind: "cut", bytes: 40 } : { kind: "lost-answer" }),
];

onServer("a restore", await versitygwServer(), (s3) => {
  let place: S3Place;
  let roots: Map<string, string>;
  beforeAll(async () => {
    place = await S3Place.of(s3(), "restored");
    const old = new SealingNodes(1, place.folder, place.url);
    try {
      await old.nodes.form(1);
      await old.deploy();
      await old.worker();
      await Promise.all(early.map((name) => old.greet(name)));
      await old.nodes.ok(["shard", "split", "1"]);
      await old.nodes.whole(1);
      await Promise.all(apart.map((name) => old.greet(name)));
      await old.nodes.ok(["shard", "merge", "1", "--timeout", "30s"]);
      await Promise.all(late.map((name) => old.greet(name)));
      // Archives are looked at once a minute.
      const isArchive = () => manifestsIn(place.folder).get(2)?.checkpoint === null;
      await until(isArchive, { what: "what was merged away to be archive", withinMs: 100_000 });
      await old.sealedUp(all);
      roots = await old.roots(all);
      await old.kill();
    } finally {
      await old.nodes[Symbol.asyncDispose]();
    }
  }, 170_000);
  afterAll(() => place?.[Symbol.asyncDispose]());

  test("all histories of both shards are there, and belong to the one that took the other in", async () => {
    const machine = new SealingNodes(1, place.folder, place.proxiedUrl);
    try {
      await machine.nodes.start();
      const isSegment = ({ method, path }: ProxiedRequest) => method === "GET" && path.includes("/segment/");
      place.proxy.plan = (request) => (isSegment(request) ? { kind: "wrong-body" } : undefined);
      const refused = await machine.nodes.run(["cluster", "restore"]);
      expect([refused.code === 0, refused.stderr]).toEqual([
        false,
        expect.stringMatching(/Cannot get object .*\/segment\/.*HASH_MISMATCH/),
      ]);
      let count = 0;
      const struck = new Set<number>();
      const seen: Record<string, number> = {};
      place.proxy.plan = (request) => {
        const kind = `${request.method} ${request.path.replace(/\?.*/, "")}`;
        seen[kind] = (seen[kind] ?? 0) + 1;
        // What comes again is answered.
        if (seen[kind] > 1 || ++count % 3 !== 0) return undefined;
        const which = (count / 3) % faults.length;
        struck.add(which);
        return faults[which]?.(request);
      };
      const { code, stderr } = await machine.nodes.run(["cluster", "restore"]);
      expect([code, stderr]).toEqual([0, expect.stringMatching(/Shard 1: through record \d+.*keys 0x0{16}–0xf{16}/)]);
      expect(struck.size).toBe(faults.length);
      expect(stderr).not.toContain("Shard 2: through");
      expect(await machine.nodes.shards()).toHaveLength(1);
      expect(await machine.roots(all)).toEqual(roots);
      place.proxy.plan = () => undefined;
      await machine.worker();
      expect(await machine.greet("new")).toContain("Hello, NEW!");
      await machine.sealedUp(["new"]);
      expect(manifestsIn(place.folder).get(1)?.restoreEpoch).toBe(2);
      // What is archive is fenced too.
      expect(manifestsIn(place.folder).get(2)?.restoreEpoch).toBe(2);
      const checked = await machine.nodes.run(["backup", "verify", "--object-store", place.url]);
      expect([checked.code, checked.stderr]).toEqual([0, expect.stringContaining("All of it is there")]);
    } finally {
      await machine.nodes[Symbol.asyncDispose]();
    }
  }, 120_000);
});
