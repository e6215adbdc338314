/** The scenario runner itself: what it reads, it writes back unchanged. */
import { expect, test } from "bun:test";
import { parseScenario, writtenOutput } from "./datadriven.ts";

const text = `# A story.
add to=a to-all
1
2
----
3

list
----
----
a

b
----
----

silent
----

`;

test("parseScenario() takes stories, arguments, input and fenced output apart", () => {
  const { blocks } = parseScenario("sums.txt", text);
  expect(blocks.map((block) => block.directive)).toEqual([
    {
      cmd: "add",
      args: new Map([
        ["to", "a"],
        ["to-all", ""],
      ]),
      input: "1\n2",
      pos: "sums.txt:2",
    },
    { cmd: "list", args: new Map(), input: "", pos: "sums.txt:8" },
    { cmd: "silent", args: new Map(), input: "", pos: "sums.txt:17" },
  ]);
  expect(blocks.map((block) => block.expected)).toEqual(["3", "a\n\nb", ""]);
});

test("a scenario written back with the output it expects is the same file", () => {
  const { blocks, tail } = parseScenario("sums.txt", text);
  expect([...blocks.flatMap((block) => [...block.raw, ...writtenOutput(block.expected)]), ...tail].join("\n")).toBe(text);
});

test("parseScenario() names the place of a directive without output", () => {
  expect(() => parseScenario("bad.txt", "go\nnow\n")).toThrow("bad.txt:1: no ---- after the directive");
  expect(() => parseScenario("bad.txt", "\ngo\n----\n----\nnow\n")).toThrow("bad.txt:2: its fenced output has no end");
});
