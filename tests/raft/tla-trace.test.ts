/** Our traces have the vocabulary and the shape of the public sample of the TLA+ model. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import type { TraceEvent } from "#core/raft";
import { parseScenario } from "../datadriven.ts";
import { Interaction } from "./interaction.ts";
import { tlaLine } from "./tla-trace.ts";

const vectors = join(import.meta.dir, "../vectors");
type Parsed = Record<string, unknown>;

/** What a value is made of: keys, and kinds of values. */
function shapeOf(value: unknown): string {
  if (Array.isArray(value)) return `[${[...new Set(value.map(shapeOf))].sort().join("|")}]`;
  if (typeof value !== "object" || value === null) return typeof value;
  const keys = Object.entries(value).map(([key, own]) => `${key}:${shapeOf(own)}`);
  return `{${keys.sort().join(" ")}}`;
}

/** An empty list may be a list of anything, and what is told in addition about an event differs. */
const comparable = (event: Parsed) => shapeOf({ ...event, prop: 0, conf: 0 });

const sample = (await Bun.file(join(vectors, "raft-tla/example-first400.ndjson")).text())
  .trim()
  .split("\n")
  .map((line) => (JSON.parse(line) as { event: Parsed }).event);

async function ownTrace(): Promise<Parsed[]> {
  const events: TraceEvent[] = [];
  for (const name of [...new Glob("*.txt").scanSync(join(vectors, "raft-datadriven/testdata"))].sort()) {
    if (name.startsWith("forget_leader")) continue;
    const env = new Interaction((event) => events.push(event));
    const { blocks } = parseScenario(name, await Bun.file(join(vectors, "raft-datadriven/testdata", name)).text());
    for (const { directive } of blocks) env.handle(directive);
  }
  return events.map((event) => (JSON.parse(tlaLine(event)) as { event: Parsed }).event);
}

test("every event has a name, a role, messages and fields that the sample has", async () => {
  const own = await ownTrace();
  expect(own.length).toBeGreaterThan(2000);
  const values = (events: readonly Parsed[], key: string) => new Set(events.map((event) => event[key] as string));
  // These happen in the scenarios but not in the sample; they are in the model's own list.
  const more = { name: ["ChangeConf"], role: ["StatePreCandidate"], type: ["MsgSnap"] };
  const unknown = (key: "name" | "role") => [...values(own, key)].filter((each) => !values(sample, key).has(each));
  expect(unknown("name")).toEqual(more.name);
  expect(unknown("role")).toEqual(more.role);
  expect([...values(sample, "name")].filter((each) => !values(own, "name").has(each))).toEqual([]);
  const types = (events: readonly Parsed[]) =>
    values(
      events.flatMap(({ msg }) => (msg === undefined ? [] : [msg as Parsed])),
      "type",
    );
  expect([...types(own)].filter((each) => !types(sample).has(each))).toEqual(more.type);

  const shapes = new Map<unknown, Set<string>>();
  for (const event of sample) shapes.set(event.name, (shapes.get(event.name) ?? new Set()).add(comparable(event)));
  const strange = own.filter((event) => event.name !== "ChangeConf" && shapes.get(event.name)?.has(comparable(event)) !== true);
  expect(strange.slice(0, 3)).toEqual([]);
  for (const { conf } of own) expect(shapeOf(conf)).toMatch(/^\[(\[string\]|\[\])(\|\[string\])?\]$/);
  const sends = own.filter(({ name, msg }) => name === "SendAppendEntriesRequest" && (msg as Parsed).type === "MsgApp");
  // A leader that was removed has no progress of its own to tell.
  expect([...new Set(sends.map(({ prop }) => shapeOf(prop)))].sort()).toEqual(["undefined", "{match:number next:number}"]);
});
