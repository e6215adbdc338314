import { expect, test } from "bun:test";
import { claimBeatKey, claimKey, MemoryBucket, MemoryObjectStore } from "#store";
import { Placement } from "../../core/placement/machine-fixture.ts";
import { bunHasher } from "../../tests/hashers.ts";
import { every, until } from "../../tests/until.ts";
import { newestPlacement, PlacementUpload, unpackPlacement, uploadsOf } from "../seal/placement-upload.ts";
import { realTiming } from "../timing.ts";
import { ClaimWatch } from "./claim-watch.ts";
import { claim, claimsAbove, declareVoid, highestClaim, keep, rebuiltElsewhere, requireNewest, withdraw } from "./claims.ts";

const cluster = "hop_00000000000000aa";
const nowMs = 1000;
const note = () => {};

test("restores take one epoch after the other; of two at the same time one gets it", async () => {
  const bucket = new MemoryBucket();
  const [one, two] = [new MemoryObjectStore(bucket), new MemoryObjectStore(bucket)];
  const tries = await Promise.allSettled([
    claim(one, cluster, { clusterId: "hop_1", nowMs }),
    claim(two, cluster, { clusterId: "hop_2", nowMs }),
  ]);
  expect(tries.filter(({ status }) => status === "rejected").map((each) => (each as PromiseRejectedResult).reason.reason)).toEqual([
    "ALREADY_MEMBER",
  ]);
  const made = tries.find((each) => each.status === "fulfilled")?.value as Awaited<ReturnType<typeof claim>>;
  expect([made.epoch, await highestClaim(two, cluster)]).toEqual([2, 2]);
  const next = await claim(two, cluster, { clusterId: "hop_3", nowMs });
  expect(next.epoch).toBe(3);
  await expect(requireNewest(one, cluster, made)).rejects.toThrow("another restore of it began");
  await requireNewest(one, cluster, next);
  await withdraw(two, cluster, next);
  expect((await claim(two, cluster, { clusterId: "hop_4", nowMs })).epoch).toBe(3);
});

test("a cluster sees that it was rebuilt elsewhere, and not that it was rebuilt itself", async () => {
  const objects = new MemoryObjectStore();
  expect(await rebuiltElsewhere(objects, cluster, 1)).toBeUndefined();
  const made = await claim(objects, cluster, { clusterId: "hop_1", nowMs });
  expect(await rebuiltElsewhere(objects, cluster, 2)).toBeUndefined();
  expect(await rebuiltElsewhere(objects, cluster, 1)).toContain("(restore epoch 2, here 1): it seals nothing there until that ends");
  await keep(objects, cluster, made);
  expect(await rebuiltElsewhere(objects, cluster, 1)).toContain("(restore epoch 2, here 1): it seals nothing there any more");
});

test("of who says that a claim is kept and who says that it is void, the first one is right", async () => {
  const bucket = new MemoryBucket();
  const [there, here] = [new MemoryObjectStore(bucket), new MemoryObjectStore(bucket)];
  for (let round = 0; round < 8; round++) {
    const own = (await highestClaim(here, cluster)) - 1;
    const made = await claim(there, cluster, { clusterId: `hop_${round}`, nowMs });
    const tries = [
      () =>
        keep(there, cluster, made).then(
          () => true,
          () => false,
        ),
      () => declareVoid(here, cluster, made.epoch).then(() => false),
    ];
    const [first, second] = await Promise.all((round % 2 === 0 ? tries : tries.reverse()).map((run) => run()));
    const isKept = first === true || second === true;
    const [state] = (await claimsAbove(here, cluster, own)).filter(({ epoch }) => epoch === made.epoch);
    expect(state).toEqual(isKept ? { epoch: made.epoch, state: "kept" } : undefined);
    if (!isKept) await expect(keep(there, cluster, made)).rejects.toThrow("saw no sign of life");
    // A void one stays for the next one to be another.
    expect(await highestClaim(here, cluster)).toBe(made.epoch);
  }
});

test("a claim of an earlier version, which shows no signs of life, counts until somebody deletes it", async () => {
  const objects = new MemoryObjectStore();
  await objects.put(claimKey(cluster, 2), new TextEncoder().encode(JSON.stringify({ epoch: 2, clusterId: "hop_1", claimedMs: nowMs })));
  expect(await claimsAbove(objects, cluster, 1)).toEqual([{ epoch: 2, state: "kept" }]);
});

test("a claim counts as long as signs of life come, and not much longer", async () => {
  const objects = new MemoryObjectStore();
  const watch = new ClaimWatch({
    objects,
    cluster,
    restoreEpoch: 1,
    timing: realTiming,
    note,
    isReady: () => true,
    lookMs: 10,
    followMs: 30,
  });
  const made = await claim(objects, cluster, { clusterId: "hop_1", nowMs });
  const killed = await claim(objects, cluster, { clusterId: "hop_2", nowMs });
  watch.start();
  try {
    for (let beat = 0; beat < 60; beat++) {
      await objects.put(claimBeatKey(cluster, made.epoch), new TextEncoder().encode(String(beat)));
      await every(20);
      expect(watch.mayWrite()).toBe(false);
    }
    // The other one, which is dead, does not wait for it.
    expect(await claimsAbove(objects, cluster, 1)).toEqual([{ epoch: made.epoch, state: "open" }]);
    await expect(keep(objects, cluster, killed)).rejects.toThrow("saw no sign of life");
    await until(() => watch.mayWrite(), { what: "the silence to be seen" });
    await expect(keep(objects, cluster, made)).rejects.toThrow("saw no sign of life");
    expect((await claim(objects, cluster, { clusterId: "hop_3", nowMs })).epoch).toBe(4);
    await until(() => !watch.mayWrite(), { what: "the next claim to be seen" });
  } finally {
    watch.stop();
  }
}, 20_000);

test("nothing may be put before the claims were looked at, and nothing after a later one is there", async () => {
  const objects = new MemoryObjectStore();
  let isReady = false;
  const watch = new ClaimWatch({
    objects,
    cluster,
    restoreEpoch: 1,
    timing: realTiming,
    note,
    isReady: () => isReady,
    lookMs: 10,
    followMs: 10,
  });
  watch.start();
  try {
    expect(watch.mayWrite()).toBe(false);
    isReady = true;
    await until(() => watch.mayWrite(), { what: "the first look" });
    expect(watch.why).toBe("");
    const made = await claim(objects, cluster, { clusterId: "hop_1", nowMs });
    await until(() => !watch.mayWrite(), { what: "the claim to be seen" });
    expect(watch.why).toContain("being rebuilt from");
    await withdraw(objects, cluster, made);
    await until(() => watch.mayWrite(), { what: "its end to be seen" });
  } finally {
    watch.stop();
  }
});

/** A placement that is led here, and its uploads. */
class Uploading implements Disposable {
  readonly objects = new MemoryObjectStore();
  readonly placement = new Placement();
  leads = true;
  private readonly upload = new PlacementUpload({
    cluster,
    clusterId: cluster,
    restoreEpoch: 1,
    objects: this.objects,
    hasher: bunHasher,
    timing: realTiming,
    note,
    placement: () => {
      const { machine } = this.placement;
      return this.leads ? { version: machine.version, states: () => machine.encodeState() } : undefined;
    },
    blob: async () => code,
  });

  constructor() {
    this.placement.do({ kind: "bootstrap", clusterId: cluster, info: infoOf(1) });
    this.upload.start();
  }

  newest() {
    return newestPlacement(this.objects, cluster, bunHasher);
  }

  [Symbol.dispose](): void {
    this.upload.stop();
  }
}

const code = new TextEncoder().encode("code");
const infoOf = (n: number) => ({ peer: `10.0.0.${n}:7072`, grpc: "", http: "", zone: "", version: "1.0.0", protocol: 1, disk: `d${n}` });

test("placement is uploaded when it has changed, by who leads it, with the code that it names; five are kept", async () => {
  using town = new Uploading();
  await until(async () => (await town.newest())?.number === 1, { what: "the first upload" });
  const bundle = new Uint8Array(Bun.SHA256.hash(code) as Uint8Array);
  town.placement.do({ kind: "deploy", namespace: "default", deploy: { bundle, size: code.length, types: ["order"] } });
  await until(async () => (await town.newest())?.number === 2, { what: "the second upload" });
  const names: string[] = [];
  for await (const { key } of town.objects.list(`${cluster}/blob/`)) names.push(key);
  expect(names).toEqual([`${cluster}/blob/${Buffer.from(bundle).toHex()}`]);
  for (let number = 3; number <= 7; number++) {
    town.placement.do({ kind: "set-entry", class: "policy", name: "p", value: new Uint8Array([number]) });
    await until(async () => (await town.newest())?.number === number, { what: `upload ${number}` });
  }
  expect((await uploadsOf(town.objects, cluster)).map(({ number }) => number)).toEqual([3, 4, 5, 6, 7]);
  await claim(town.objects, cluster, { clusterId: "hop_1", nowMs });
  town.placement.do({ kind: "set-replication", count: 1 });
  await until(async () => (await highestClaim(town.objects, cluster)) === 2, { what: "the claim" });
  expect((await town.newest())?.number).toBe(7);
}, 20_000);

test("an upload that is damaged, or is another one, is refused by name", async () => {
  using town = new Uploading();
  await until(async () => (await town.newest()) !== undefined, { what: "the first upload" });
  const key = `${cluster}/placement/e000000000001-000000000001.states`;
  const bytes = (await town.objects.get(key)) as Uint8Array;
  const flipped = bytes.slice();
  flipped[40] = (flipped[40] as number) ^ 1;
  expect(() => unpackPlacement(flipped, key, bunHasher)).toThrow(`Cannot read ${key}: its bytes have SHA-256`);
  expect(() => unpackPlacement(bytes, key.replace("1.states", "2.states"), bunHasher)).toThrow("it is number 1 of restore epoch 1");
});
