/** dbos-py#759: an empty id could never be recovered. restate#4116, #4115: a quote in an id broke a query, and the answer was an empty list. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { HopError } from "#sdk/client";
import { CaseServer } from "./case-fixture.ts";

let at: CaseServer;
beforeAll(async () => {
  at = await CaseServer.up();
});
afterAll(() => at[Symbol.asyncDispose]());

/** Carried through byte for byte. */
const carried: [string, string][] = [
  ["a space", " "],
  ["a slash", "/"],
  ["a colon", ":"],
  ["a way out of the folder", "../../../etc/passwd"],
  ["an emoji", "🦘👩‍👩‍👧"],
  ["right-to-left text", "ﷺ\u202eabc"],
  ["single quotes", "it's ''quoted''"],
  ["double quotes", 'say "hi" \\"'],
  ["backticks and dollars", "$(id)`id`$HOME"],
  ["a statement", "'; DROP TABLE run;--"],
  ["wildcards", "%_*?[a-z]"],
  ["a percent code", "%00%2e%2e"],
  ["an option", "--help"],
  ["255 bytes", `${"é".repeat(127)}x`],
];

/** Refused by name, never stored. */
const refused: [string, string][] = [
  ["10 KB", "x".repeat(10_000)],
  ["256 bytes", "x".repeat(256)],
  ["NUL", "a\0b"],
  ["a line feed", "a\nb"],
  ["an escape", "a\u001b[2Jb"],
  ["half a pair", "a\ud800"],
];

describe.each(carried)("%s", (_, instance) => {
  test("as a run's name passes through client, command line, proof file and restart intact", async () => {
    const run = `default:${instance}`;
    const handle = await at.client.start("collect", undefined, { instance });
    expect(handle.id).toBe(run);
    await at.ok(["workflow", "signal", "--input", "1", "--", run, "item"]);
    const shown = JSON.parse(await at.ok(["workflow", "show", "-o", "json", "--", run])) as { run: string };
    expect(shown.run).toBe(run);
    const list = JSON.parse(await at.ok(["workflow", "list", "--all", "-o", "json"])) as { run: string }[];
    expect(list.filter((row) => row.run === run)).toHaveLength(1);
    const proof = join(at.hop.folder, "proof.json");
    await at.ok(["audit", "--proof", proof, "-o", "json", "--", run]);
    expect(readFileSync(proof, "utf8")).toContain(JSON.stringify(`run/${run}`).slice(1, -1));
    await at.hop.expectOk(["audit", "verify", proof]);
    expect(await handle.query<unknown[]>("seen")).toEqual([1]);
  });
});

test("all of them are there after kill -9, and end under their names", async () => {
  await at.server.kill();
  await at.again();
  for (const [, instance] of carried) {
    const handle = at.client.handle<unknown[]>({ instance });
    await handle.signal("item", { stop: true });
    expect(await handle.result()).toEqual([1]);
  }
  expect(existsSync(join(at.server.data, "..", "etc"))).toBe(false);
}, 30_000);

describe.each(refused)("%s", (_, instance) => {
  test("as a run's name is refused as what it is, by client and command line", async () => {
    // Half a pair can't be put on the wire: it arrives as the replacement character, or is refused before.
    if (instance.isWellFormed()) {
      const error = await at.client.start("collect", undefined, { instance }).catch((e: unknown) => e);
      expect([error instanceof HopError, (error as HopError).reason]).toEqual([true, "BAD_REQUEST"]);
    }
    if (instance.includes("\0") || !instance.isWellFormed()) return;
    for (const args of [
      ["run", "collect", "--instance", instance],
      ["workflow", "show", instance],
      ["workflow", "result", instance],
      ["audit", instance],
    ]) {
      const { code, stdout, stderr } = await at.hop.run(args, { server: at.server });
      expect([args[0], code, stdout]).toEqual([args[0], 2, ""]);
      expect(stderr).toStartWith("error: ");
    }
  });
});

test("an empty name is no name: refused where one is asked for, and a fresh one where a run is started without", async () => {
  for (const args of [
    ["workflow", "show", ""],
    ["workflow", "result", ""],
    ["workflow", "signal", "", "item"],
    ["audit", ""],
    ["run", "collect", "--instance", ""],
  ]) {
    const { code, stdout } = await at.hop.run(args, { server: at.server });
    expect([args.join(" "), code, stdout]).toEqual([args.join(" "), 2, ""]);
  }
  const handle = await at.client.start("collect", undefined, { instance: "" });
  expect(handle.id).toStartWith("default:wf_");
});

test("other names of a request that hold quotes, or nothing, are carried or refused, never an empty answer", async () => {
  const quoted = `it's "so"`;
  expect(await at.client.start(quoted).catch((error: HopError) => error.reason)).toBe("WORKFLOW_NOT_DEPLOYED");
  const handle = await at.client.start("collect", undefined, { instance: "other-names" });
  await handle.signal(quoted, 1, { id: quoted });
  expect(await handle.query(quoted).catch((error: HopError) => error.reason)).toBe("QUERY_NOT_FOUND");
  expect(await handle.signal("", 1).catch((error: HopError) => error.reason)).toBe("BAD_REQUEST");
  const bad = [
    ["workflow", "list", "-n", quoted],
    ["workflow", "list", "--limit", "'"],
    ["workflow", "list", "--status", "'"],
    ["workflow", "show", "-n", "", quoted],
  ];
  for (const args of bad) {
    const { code, stdout } = await at.hop.run(args, { server: at.server });
    expect([args.join(" "), code === 0, stdout]).toEqual([args.join(" "), args.includes("") ? expect.anything() : false, ""]);
  }
  // A type that nothing has is an honest empty list; it is no query that could break.
  expect(JSON.parse(await at.ok(["workflow", "list", "--type", quoted, "-o", "json"]))).toEqual([]);
});
