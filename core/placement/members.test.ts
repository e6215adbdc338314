import { describe, expect, test } from "bun:test";
import { asNodeId } from "#core/base";
import { info, Placement } from "./machine-fixture.ts";
import { type MemberPage, pageOfMembers } from "./members.ts";
import type { ClusterView } from "./view.ts";

function page(view: ClusterView, limit: number, token: string, options = {}): MemberPage {
  const found = pageOfMembers(view, limit, token, options);
  if ("reject" in found) throw new Error(found.message);
  return found;
}

/** All pages, with what `between` does to the cluster after each. */
function pages(placement: Placement, limit: number, between: (round: number) => void = () => {}): number[][] {
  const all: number[][] = [];
  for (let token = "", round = 0; round === 0 || token !== ""; round++) {
    const found = page(placement.view, limit, token);
    all.push(found.members.map((each) => Number(each.node)));
    token = found.next;
    between(round);
  }
  return all;
}

const cluster = Placement.of(300);
const everyone = Array.from({ length: 300 }, (_, i) => i + 1);

describe("300 members", () => {
  test("are listed whole by pages of every size", () => {
    for (let limit = 1; limit <= 301; limit++) {
      const all = pages(cluster, limit);
      expect([limit, all.flat()]).toEqual([limit, everyone]);
      // No page but the last is short, and none is empty.
      expect(all.map((each) => each.length)).toEqual(
        Array.from({ length: Math.ceil(300 / limit) }, (_, i) => Math.min(limit, 300 - i * limit)),
      );
    }
    expect(pages(cluster, 0).map((each) => each.length)).toEqual([100, 100, 100]);
  });

  test("who is there all the while is seen once, whoever comes and goes", () => {
    const placement = Placement.of(300);
    let next = 301;
    const seen = pages(placement, 7, (round) => {
      // One that was seen, the one where the page ended, and one that is still to come.
      for (const gone of [round * 7 + 2, round * 7 + 7, 290 - round]) placement.do({ kind: "remove", node: asNodeId(gone) });
      if (round < 10) placement.do({ kind: "join", info: info(next, { disk: `new-${next++}` }) });
    }).flat();
    expect(new Set(seen).size).toBe(seen.length);
    const stayed = [...placement.view.nodes.values()].filter((each) => each.standing === "member").map((each) => Number(each.node));
    expect(stayed.filter((node) => !seen.includes(node))).toEqual([]);
    const all = page(placement.view, 1000, "", { removed: true }).members;
    expect(all).toHaveLength(placement.view.nodes.size);
  });

  test("what is no token, or no limit, is refused", () => {
    for (const token of ["x", "after-", "after--1", "after-1x", "after-1e3", "AFTER-1"])
      expect(pageOfMembers(cluster.view, 10, token)).toMatchObject({ reject: "BAD_REQUEST" });
    for (const limit of [-1, 1.5]) expect(pageOfMembers(cluster.view, limit, "")).toMatchObject({ reject: "BAD_REQUEST" });
  });
});
