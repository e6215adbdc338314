/**
 * Public Raft scenarios (tests/vectors/raft-datadriven): quorums and changes of membership to the
 * letter, interactions to the letter but for log lines.
 */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import { type Directive, parseScenario } from "../datadriven.ts";
import { confChangeDirectives } from "./conf-changes.ts";
import { expectedOutput, Interaction } from "./interaction.ts";
import { runQuorum } from "./quorums.ts";

const folder = join(import.meta.dir, "../vectors/raft-datadriven");

/** Scenarios that don't apply, and why. */
const leftOut: Readonly<Record<string, string>> = {
  "testdata/forget_leader.txt": "A member that forgets its leader on demand serves a host that has none to forget here",
  "testdata/forget_leader_prevote_checkquorum.txt": "As forget_leader.txt",
  "testdata/forget_leader_read_only_lease_based.txt": "As forget_leader.txt; leases are proven by echoed ticks instead",
};

const files = [...new Glob("**/testdata/*.txt").scanSync(folder), ...new Glob("testdata/*.txt").scanSync(folder)];
const names = [...new Set(files)].sort();

function openFor(name: string): (directive: Directive) => string {
  if (name.startsWith("quorum/")) return runQuorum;
  if (name.startsWith("confchange/")) return confChangeDirectives();
  const env = new Interaction();
  return (directive) => env.handle(directive);
}

/** Blanks at the ends of lines don't count. */
const trimmed = (text: string) => text.replace(/[ \n]+$/gm, "").trimEnd();

test("every scenario is run or left out with a reason", () => {
  expect(names.length).toBe(41);
  for (const [name, reason] of Object.entries(leftOut)) {
    expect([name, names.includes(name)]).toEqual([name, true]);
    expect(reason).not.toBe("");
  }
});

for (const name of names.filter((each) => !(each in leftOut))) {
  test(name, async () => {
    const text = await Bun.file(join(folder, name)).text();
    // A list in parentheses is one argument, blanks or not.
    const { blocks } = parseScenario(name, name.startsWith("quorum/") ? text.replace(/, +/g, ",") : text);
    expect(blocks.length).toBeGreaterThan(0);
    const run = openFor(name);
    for (const { directive, expected } of blocks) {
      const actual = trimmed(run(directive));
      const wanted = trimmed(name.startsWith("testdata/") ? expectedOutput(expected) : expected);
      expect(`${directive.pos}\n${actual}`).toBe(`${directive.pos}\n${wanted}`);
    }
  });
}
