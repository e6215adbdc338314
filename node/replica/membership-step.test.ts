import { describe, expect, test } from "bun:test";
import { asNodeId } from "#core/base";
import { type MembershipNow, membershipStep } from "./membership-step.ts";

const ids = (...nodes: number[]) => nodes.map(asNodeId);
const matches = (of: Record<number, number>) => new Map(Object.entries(of).map(([node, match]) => [asNodeId(Number(node)), match]));

function now(given: Partial<MembershipNow> = {}): MembershipNow {
  const voters = given.voters ?? ids(1);
  const members = [...voters, ...(given.learners ?? [])];
  return {
    self: asNodeId(1),
    voters,
    learners: [],
    isChanging: false,
    match: new Map(members.map((node) => [node, 100])),
    lastIndex: 100,
    active: new Set(members),
    ...given,
  };
}

describe("the next step to the membership that is wanted", () => {
  test("new members learn first, and nothing is done while a change is under way", () => {
    expect(membershipStep(now(), ids(1, 2, 3))).toEqual({ kind: "add-learners", nodes: ids(2, 3) });
    expect(membershipStep(now({ isChanging: true }), ids(1, 2, 3))).toEqual({ kind: "none" });
    expect(membershipStep(now(), [])).toEqual({ kind: "none" });
  });

  test("learners that have caught up become voters with one change; before, they are waited for", () => {
    const learners = ids(2, 3);
    const wanted = ids(1, 2, 3);
    expect(membershipStep(now({ learners }), wanted)).toEqual({ kind: "change-voters", add: learners, remove: [] });
    const far = matches({ 1: 10_000, 2: 10_000, 3: 50 });
    expect(membershipStep(now({ learners, match: far, lastIndex: 10_000 }), wanted).kind).toBe("wait");
    expect(membershipStep(now({ learners, active: new Set(ids(1, 2)) }), wanted)).toEqual({ kind: "wait", for: ids(3) });
  });

  test("a learner that took nothing yet never becomes a voter, however short the log and though it counts as active when it is added", () => {
    const match = matches({ 1: 7, 2: 7, 3: 0 });
    const step = membershipStep(now({ learners: ids(2, 3), match, lastIndex: 7 }), ids(1, 2, 3));
    expect(step).toEqual({ kind: "wait", for: ids(3) });
  });

  test("a leader that is not to stay brings the others in, then hands over to the one that has most", () => {
    const learners = ids(4);
    expect(membershipStep(now({ voters: ids(1, 2, 3), learners }), ids(2, 3, 4))).toEqual({
      kind: "change-voters",
      add: ids(4),
      remove: [],
    });
    const match = matches({ 1: 100, 2: 90, 3: 100, 4: 95 });
    expect(membershipStep(now({ voters: ids(1, 2, 3, 4), match }), ids(2, 3, 4))).toEqual({ kind: "transfer", to: asNodeId(3) });
  });

  test("voters and learners that are not wanted go", () => {
    expect(membershipStep(now({ voters: ids(1, 2, 3) }), ids(1, 2))).toEqual({ kind: "change-voters", add: [], remove: ids(3) });
    expect(membershipStep(now({ voters: ids(1, 2), learners: ids(4) }), ids(1, 2))).toEqual({ kind: "remove", nodes: ids(4) });
    expect(membershipStep(now({ voters: ids(1, 2, 3) }), ids(1, 2, 3))).toEqual({ kind: "none" });
  });
});
