/**
 * House rules that a compiler cannot check: layers, packages, cycles, purity of core, sizes, and
 * what may not stand in a text. Each failure names the file and the rule.
 */
import { expect, test } from "bun:test";
import { dirname, join, normalize } from "node:path";
import { filesLike, importsOf, isGuest, isTest, productFiles, readSource, topFolders, withoutComments } from "./sources.ts";

/** Area → areas it may import. Listing a whole folder ("core") admits its sub-areas. */
const layers: Readonly<Record<string, readonly string[]>> = {
  proto: [],
  "core/base": ["proto"],
  "core/merkle": ["core/base", "proto"],
  "core/policy": ["core/base", "proto"],
  "core/raft": ["core/base", "proto"],
  "core/run": ["core/base", "core/policy", "core/merkle", "proto"],
  "core/dispatch": ["core/base", "core/policy", "proto"],
  "core/placement": ["core/base", "core/merkle", "proto"],
  "core/schedule": ["core/base", "proto"],
  "core/shard": ["core/base", "core/merkle", "core/raft", "core/run", "core/dispatch", "core/policy", "core/schedule", "proto"],
  store: ["core", "proto"],
  sdk: ["proto"],
  // Core and worker in a test's process: nobody imports it.
  "sdk/typescript/testing": ["core", "worker", "sdk", "proto"],
  worker: ["sdk", "core/base", "proto"],
  node: ["store", "core", "proto"],
  cmd: ["node", "store", "worker", "sdk", "core", "proto"],
};

/** Package or module → where product code may name it. What is not listed may be named nowhere. */
const packages: readonly (readonly [RegExp, readonly string[]])[] = [
  [/^@bufbuild\/protobuf(\/|$)/, ["proto", "node/service"]],
  [/^@grpc\/grpc-js$/, ["proto/connection", "proto/descriptors", "node", "worker", "sdk/typescript/client"]],
  [/^@grpc\/reflection$/, ["node"]],
  [/^prom-client$/, ["node"]],
  [/^commander$/, ["cmd"]],
  [/^@aws-sdk\/client-s3$/, ["store/objects"]],
  // Stands in the project that `hop init` writes.
  [/^@hopskip\/(runtime|activity)$/, ["cmd/project"]],
  [/^@duckdb\/node-api$/, ["cmd/cold"]],
  [/^bun:sqlite$/, ["store"]],
  [/^bun:ffi$/, ["worker", "store"]],
  [/^(bun|node:[\w/]+)$/, ["proto/connection", "store", "worker", "node", "cmd", "sdk/typescript/client", "sdk/typescript/testing"]],
];

/** Boundary modules that not every layer above may use. */
const restricted: Readonly<Record<string, readonly string[]>> = {
  "#proto/connection": ["node", "worker", "sdk", "cmd"],
  "#proto/descriptors": ["node", "worker", "sdk"],
};

const bannedInCore: readonly (readonly [RegExp, string])[] = [
  [/\bDate\.now\b|\bnew Date\(\)/, "take `now` from the input"],
  [/\bMath\.random\b/, "use base/prng.ts"],
  [/\basync[\s(]|\bawait[\s(]|\bPromise\b/, "return effects instead"],
];

/** Says nothing about the thing, only where it was put. */
const vagueName = /(^|\/)(utils?|helpers?|common|misc|manager)(\.|\/)/;

const linesMax = 500;
const testLinesMax = 800;

const { imports: boundaries } = (await Bun.file(join(import.meta.dir, "../package.json")).json()) as { imports: Record<string, string> };

const within = (file: string, place: string) => file === place || file.startsWith(`${place}/`) || file.startsWith(`${place}.`);
const topOf = (path: string) => path.split("/")[0] as string;

function areaOf(path: string): string {
  const parts = path.split("/");
  const found = [3, 2].map((count) => parts.slice(0, count).join("/")).find((place) => place in layers);
  return found ?? topOf(path);
}

const mayImport = (from: string, to: string) => from === to || (layers[from] ?? []).some((each) => within(to, each));

/** What is wrong with one import of `file`, or undefined. */
function importProblem(file: string, specifier: string): string | undefined {
  const own = areaOf(file);
  if (specifier.startsWith(".")) {
    const target = normalize(join(dirname(file), specifier));
    // The version is the package's own.
    if (target === "package.json") return undefined;
    return areaOf(target) === own ? undefined : `reach ${areaOf(target)} through the imports map, not by path`;
  }
  if (specifier.startsWith("#")) {
    const target = boundaries[specifier];
    if (target === undefined) return `${specifier} is not in the imports map`;
    const area = areaOf(normalize(target));
    if (!mayImport(own, area)) return `${own} may not import ${area}`;
    const allowed = restricted[specifier];
    return allowed === undefined || allowed.some((place) => within(file, place)) ? undefined : `${own} may not use ${specifier}`;
  }
  const rule = packages.find(([pattern]) => pattern.test(specifier));
  if (rule === undefined) return `${specifier} is a package that no rule admits`;
  return rule[1].some((place) => within(file, place)) ? undefined : `${specifier} may not be used here`;
}

test("imports follow the layers and the package rules", async () => {
  const errors: string[] = [];
  for (const file of productFiles) {
    for (const { specifier } of importsOf(withoutComments(await readSource(file)))) {
      const problem = importProblem(file, specifier);
      if (problem !== undefined) errors.push(`${file}: ${problem}`);
    }
  }
  expect(errors).toEqual([]);
});

test("an import rule finds each kind of breach", () => {
  expect(importProblem("core/base/a.ts", "#node")).toBe("core/base may not import node");
  expect(importProblem("core/base/a.ts", "#core/shard")).toBe("core/base may not import core/shard");
  expect(importProblem("worker/a.ts", "#core/shard")).toBe("worker may not import core/shard");
  expect(importProblem("worker/a.ts", "#core/base")).toBeUndefined();
  expect(importProblem("node/a.ts", "../store/log/wal.ts")).toBe("reach store through the imports map, not by path");
  expect(importProblem("node/a.ts", "bun:sqlite")).toBe("bun:sqlite may not be used here");
  expect(importProblem("core/base/a.ts", "node:fs")).toBe("node:fs may not be used here");
  expect(importProblem("node/a.ts", "left-pad")).toBe("left-pad is a package that no rule admits");
  expect(importProblem("store/a.ts", "#proto/connection")).toBe("store may not use #proto/connection");
  expect(importProblem("store/a.ts", "#proto/gen")).toBe("#proto/gen is not in the imports map");
  expect(importsOf('import type { A } from "./a.ts";\nexport { b } from "./b.ts";\nawait import("./c.ts");\nimport "./d.ts";')).toEqual([
    { specifier: "./a.ts", typeOnly: true },
    { specifier: "./b.ts", typeOnly: false },
    { specifier: "./c.ts", typeOnly: false },
    { specifier: "./d.ts", typeOnly: false },
  ]);
});

/** The first cycle found in each connected part of the graph, as `a -> b -> a`. */
function cyclesOf(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const cycles: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) {
      cycles.push([...path.slice(path.indexOf(file)), file].join(" -> "));
      return;
    }
    if (done.has(file)) return;
    for (const to of graph.get(file) ?? []) visit(to, [...path, file]);
    done.add(file);
  };
  for (const file of graph.keys()) visit(file, []);
  return cycles;
}

test("no file takes part in a cycle of imports", async () => {
  const graph = new Map<string, string[]>();
  for (const file of productFiles) {
    const near = importsOf(withoutComments(await readSource(file))).filter((each) => !each.typeOnly && each.specifier.startsWith("."));
    graph.set(
      file,
      near.map((each) => normalize(join(dirname(file), each.specifier))),
    );
  }
  expect(
    cyclesOf(
      new Map([
        ["a", ["b"]],
        ["b", ["c"]],
        ["c", ["b"]],
      ]),
    ),
  ).toEqual(["b -> c -> b"]);
  expect(cyclesOf(graph)).toEqual([]);
});

test("core has no clock, randomness or awaits", async () => {
  const errors: string[] = [];
  for (const file of productFiles.filter((each) => each.startsWith("core/"))) {
    const code = withoutComments(await readSource(file));
    for (const [ban, hint] of bannedInCore) {
      const found = ban.exec(code)?.[0];
      if (found !== undefined) errors.push(`${file}: ${found}: ${hint}`);
    }
  }
  expect(errors).toEqual([]);
});

const ownCode = filesLike(`{${topFolders.join(",")},scripts,tests,examples}/**/*.{ts,tsx,js,cjs,mjs,cc,h}`).filter(
  (file) => !file.startsWith("proto/gen/"),
);

test("files stay small and begin with what they own", async () => {
  const errors: string[] = [];
  for (const file of ownCode) {
    const text = await readSource(file);
    const lines = text.split("\n").length - 1;
    const most = isTest(file) ? testLinesMax : linesMax;
    if (lines > most) errors.push(`${file}: ${lines} lines, at most ${most} are allowed: split it by noun`);
    if (vagueName.test(file)) errors.push(`${file}: name it by the noun inside`);
    const header = /^(#!.*\n|"use strict";\n)?(\/\/|\/\*)/.test(text);
    // What an index re-exports, and what a .cc file defines, is described where it is declared.
    const isDescribedElsewhere = /(^|\/)index\.ts$|\.cc$/.test(file);
    if (!header && !isDescribedElsewhere && !isTest(file) && !isGuest(file)) errors.push(`${file}: say in a header comment what it owns`);
  }
  expect(errors).toEqual([]);
});

/** Written so that this file does not match itself. */
const bannedInText: readonly (readonly [RegExp, string])[] = [
  [/\/(work|root|home)\/(?=[a-z])/, "a path of one machine"],
  [/\bshared\/(?=design|style|recipes|seeds|cases|vectors|reliability|peers|field)/, "a document outside the project"],
  [/(?<![-.\w])registry\.(?=\w+\.\w+)/, "a package registry's host"],
  [/\bissues? (?=#?\d)|\b(?:fixes|closes|see) (?=#\d)/i, "a ticket's number"],
  [/\b(?:TO)(?=DO\b)|\bFIX(?=ME\b)|\bX(?=XX\b)/, "a note to oneself"],
];

test("texts hold no machine paths, registry hosts, ticket numbers or notes to oneself", async () => {
  const errors: string[] = [];
  const texts = filesLike("**/*.{ts,tsx,js,cjs,mjs,cc,h,md,json,toml,yaml,yml,proto,txt,sh,csv}").concat(filesLike(".ci/*"));
  for (const file of texts.filter((each) => each !== "package-lock.json" && !each.startsWith("tests/vectors/"))) {
    const lines = (await readSource(file)).split("\n");
    for (const [ban, what] of bannedInText) {
      const at = lines.findIndex((line) => ban.test(line));
      if (at >= 0) errors.push(`${file}:${at + 1}: ${what}`);
    }
  }
  expect(errors).toEqual([]);
});

test("the lock file names no registry", async () => {
  const lock = await readSource("package-lock.json");
  expect(/"resolved": "https?:/.test(lock)).toBe(false);
});

test("each entry of the imports map is one file, written by hand", () => {
  const wild = Object.entries(boundaries).filter(
    ([name, target]) => name.includes("*") || !target.endsWith(".ts") || target.includes("/gen/"),
  );
  expect(wild).toEqual([]);
});

test("tests do not sleep, and one that is skipped says what it needs", async () => {
  const errors: string[] = [];
  for (const file of filesLike("**/*.{test,suite}.ts")) {
    const code = withoutComments(await readSource(file));
    if (/\b(test|describe|it)\.(?=only|todo)/.test(code)) errors.push(`${file}: leaves tests out`);
    if (/\bBun\.(?=sleep)|\bsetTimeout\((?:resolve|r|done),/.test(code))
      errors.push(`${file}: wait for a condition (see tests/until.ts) instead of a time`);
    // The types say that these return nothing, so the linter can't see that they must be awaited.
    if (/[;{}]\s*expect\([^;]*?\)\s*\.(?:rejects|resolves)\b/.test(code)) errors.push(`${file}: await what .rejects and .resolves return`);
    for (const [, name = ""] of code.matchAll(/\bskipIf\((?:[^()]|\([^()]*\))*\)\(\s*["`]([^"`]*)/g)) {
      if (!/\[needs |\(skipped /.test(name)) errors.push(`${file}: "${name}" is skipped at times; end its name with [needs …]`);
    }
  }
  expect(errors).toEqual([]);
});
