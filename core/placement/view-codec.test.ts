import { describe, expect, test } from "bun:test";
import { asNodeId, asShardId, keyMax, Prng } from "#core/base";
import { CodecError } from "#proto";
import { Placement, pair } from "./machine-fixture.ts";
import { bundleFor, emptyView } from "./view.ts";
import { applyChanges, decodeView, encodeChanges, encodeView } from "./view-codec.ts";

/** Something of everything. */
function full(): Placement {
  const placement = Placement.of(4, { shards: 4, zone: (node) => `z${node % 3}` });
  for (const shard of [0, 1, 2, 3, 4]) placement.place(shard, [1, 2, 3]);
  for (const shard of [1, 2, 3]) placement.lease(shard, 1, 3);
  placement.do({ kind: "want-split", shard: asShardId(1), at: 77 });
  placement.do({ kind: "want-merge", ...pair(2, 3) });
  placement.do({ kind: "set-entry", class: "policy", name: "p", value: Uint8Array.of(1, 2) });
  placement.do({ kind: "set-entry", class: "namespace", name: "gone", value: Uint8Array.of(1) });
  placement.do({ kind: "set-entry", class: "namespace", name: "gone", value: Uint8Array.of(), removed: true });
  placement.do({ kind: "deploy", namespace: "n", deploy: { bundle: new Uint8Array(32).fill(3), size: 9, types: ["b", "a"] } });
  placement.do({ kind: "leave", node: asNodeId(4) });
  placement.do({ kind: "set-replication", count: 1, reason: "few nodes" });
  return placement;
}

describe("a view", () => {
  test("comes back whole", () => {
    const { view } = full();
    const bytes = encodeView(view);
    const back = decodeView(bytes);
    bytes.fill(0);
    expect(back).toEqual(view);
    expect(bundleFor(back, "n", { type: "a" })).toEqual(new Uint8Array(32).fill(3));
    expect(decodeView(encodeView(emptyView))).toEqual(emptyView);
  });

  test("follows changes step by step, and all at once", () => {
    const placement = full();
    const first = placement.view;
    let followed = first;
    const prng = new Prng(3);
    const changes = [
      () => placement.lease(5, 2, 1, { parent: 1, at: 77 }),
      () =>
        placement.do({ kind: "merge-frozen", ...pair(2, 3), change: 2, through: 9 as never, epoch: placement.shard(3).lease?.epoch ?? 0 }),
      () => placement.do({ kind: "merge-done", ...pair(2, 3) }),
      () => placement.do({ kind: "set-entry", class: "policy", name: "p", value: Uint8Array.of(), removed: true }),
      () => placement.do({ kind: "set-entry", class: "policy", name: "p", value: Uint8Array.of(7) }),
      () => placement.do({ kind: "remove", node: asNodeId(4) }),
      () => placement.do({ kind: "set-replication", count: 5 }),
      () => placement.place(4, [2]),
      () =>
        placement.do({
          kind: "deploy",
          namespace: "m",
          deploy: { bundle: new Uint8Array(32).fill(prng.below(200)), size: 9, types: ["c"] },
        }),
      () =>
        placement.do({ kind: "deploy", namespace: "n", deploy: { bundle: new Uint8Array(32).fill(4), size: 9, types: ["a"], held: true } }),
      () => placement.do({ kind: "route", namespace: "n", route: { type: "a", version: 2, percent: 30, reason: "try it" } }),
    ];
    for (const change of changes) {
      const before = placement.view;
      change();
      expect(placement.view.version).toBeGreaterThan(before.version);
      followed = applyChanges(followed, encodeChanges(placement.view, before.version));
      expect(followed).toEqual(placement.view);
    }
    expect(applyChanges(first, encodeChanges(placement.view, first.version))).toEqual(placement.view);
    // More than is missing does no harm; what is old, or whole, neither.
    const mid = applyChanges(first, encodeChanges(placement.view, first.version - 3));
    expect(mid).toEqual(placement.view);
    expect(applyChanges(mid, encodeView(first))).toBe(mid);
    expect(applyChanges(emptyView, encodeView(placement.view))).toEqual(placement.view);
  });

  test("a gap is not stepped over", () => {
    const { view } = full();
    expect(() => applyChanges(emptyView, encodeChanges(view, 3))).toThrow(CodecError);
    expect(() => decodeView(encodeChanges(view, 3))).toThrow(CodecError);
    expect(() => decodeView(encodeView(view).subarray(0, 50))).toThrow(CodecError);
  });
});

test("300 nodes and 1000 shards are a few hundred kilobytes, one change of them a few hundred bytes", () => {
  const placement = Placement.of(300, { shards: 1000, zone: (node) => `zone-${node % 3}` });
  for (let shard = 1; shard <= 1000; shard++) {
    const voters = [0, 1, 2].map((i) => 1 + ((shard + i) % 300));
    placement.place(shard, voters);
    placement.lease(shard, voters[0] as number, 5);
  }
  const bytes = encodeView(placement.view);
  expect(bytes.length).toBeGreaterThan(50_000);
  expect(bytes.length).toBeLessThan(150_000);
  const { version } = placement.view;
  placement.lease(7, 8, 6);
  expect(encodeChanges(placement.view, version).length).toBeLessThan(200);
  expect(decodeView(bytes).ranges.at(-1)?.range.last).toBe(keyMax);
});
