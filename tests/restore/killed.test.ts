/** A restore that is killed (kill -9) at whatever moment: the old cluster seals on, or another restore is made. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { Server } from "../cluster/harness.ts";
import type { ProxiedRequest } from "../objects/fault-proxy.ts";
import { onServer, versitygwServer } from "../objects/s3-server.ts";
import { until } from "../until.ts";
import { filesOf, manifestsIn, SealingNodes } from "./restore-fixture.ts";
import { knowCredentials, S3Place } from "./s3-place.ts";

const instances = Array.from({ length: 4 }, (_, i) => `run${i}`);

knowCredentials();

onServer("a killed restore", await versitygwServer(), (s3) => {
  let place: S3Place;
  let old: SealingNodes;
  let machines: SealingNodes;
  let roots: Map<string, string>;

  beforeAll(async () => {
    place = await S3Place.of(s3(), "killed");
    old = new SealingNodes(1, place.folder, place.url);
    await old.nodes.form(1);
    await old.deploy();
    await old.worker();
    for (const name of instances) await old.greet(name);
    await old.sealedUp(instances);
    roots = await old.roots(instances);
    machines = new SealingNodes(1, place.folder, place.proxiedUrl);
    await machines.nodes.start();
  });
  afterAll(async () => {
    for (const each of [old, machines]) await each?.nodes[Symbol.asyncDispose]();
    await place?.[Symbol.asyncDispose]();
  });

  const machine = (): Server => machines.nodes.at(0);
  const restore = () => machines.nodes.run(["cluster", "restore"], { server: machine() });
  const claims = () => filesOf(place.folder, "claim").map((path) => path.slice(path.lastIndexOf("/") + 1));
  const left = () => readdirSync(machine().data).filter((name) => /^(node\.json|log|restor|checkpoint)/.test(name));

  /** Restores, and ends the process when it asks for this; the request is answered, or never comes. */
  async function killedAt(isMoment: (request: ProxiedRequest) => boolean, comes = false): Promise<void> {
    let killing: Promise<unknown> | undefined;
    place.proxy.plan = async (request) => {
      if (killing === undefined && isMoment(request)) killing = machine().kill();
      if (killing === undefined) return undefined;
      if (!comes) await killing;
      return { kind: comes ? "lost-answer" : "lost-request" };
    };
    const { code } = await restore();
    await killing;
    place.proxy.plan = () => undefined;
    expect([killing === undefined, code === 0]).toEqual([false, false]);
    await machine().begin();
    expect(left()).toEqual([]);
  }

  const putOf = (kind: string) => (request: ProxiedRequest) => request.method === "PUT" && request.path.includes(kind);

  test("before it changed anything: the old cluster stops, sees no sign of life, and seals on", async () => {
    await killedAt(({ method, path }) => method === "GET" && path.includes("/segment/"));
    await killedAt(putOf(".verdict"));
    expect(claims().filter((name) => name.endsWith(".json"))).toHaveLength(2);
    // A node that starts looks before it seals.
    await old.kill();
    await old.nodes.at(0).begin();
    const status = () => old.nodes.ok(["cluster", "status"], { server: old.nodes.at(0) });
    await until(async () => (await status()).includes("being rebuilt from"), { what: "the status to say it" });
    const before = manifestsIn(place.folder).get(1)?.number ?? 0;
    await old.worker();
    await old.greet("later");
    expect(manifestsIn(place.folder).get(1)?.number).toBe(before);
    await until(() => (manifestsIn(place.folder).get(1)?.number ?? 0) > before, { what: "the old cluster to seal on", withinMs: 90_000 });
    expect(await status()).not.toContain("rebuilt from");
    await old.sealedUp(["later"]);
    roots = await old.roots([...instances, "later"]);
  }, 150_000);

  test("right before and right behind its first manifest: the next restore is made, in the same folder", async () => {
    await killedAt(putOf("/manifest/"));
    await killedAt(putOf("/manifest/"), true);
    const { code, stderr } = await restore();
    expect([code, stderr]).toEqual([0, expect.stringContaining("Shard 1: ")]);
    expect(await machines.roots([...roots.keys()])).toEqual(roots);
    await machines.worker();
    expect(await machines.greet("new")).toContain("Hello, NEW!");
    await machines.sealedUp(["new"]);
    const epochs = [...manifestsIn(place.folder).values()].map(({ restoreEpoch }) => restoreEpoch);
    expect(epochs).toEqual([6]);
    expect(existsSync(join(machine().data, "restoring"))).toBe(false);
    // The old one is fenced for ever.
    await old.kill();
    await old.nodes.at(0).begin();
    const status = () => old.nodes.ok(["cluster", "status"], { server: old.nodes.at(0) });
    await until(async () => (await status()).includes("was rebuilt from"), { what: "the old cluster to say it", withinMs: 60_000 });
  }, 150_000);
});
