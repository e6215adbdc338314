/** What is packaged agrees with the product: options that exist, values that are used, files that are copied. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { filesLike, readSource, root } from "../sources.ts";
import { environmentOf, optionsIn, optionsOf, unitSettings } from "./deploy-files.ts";

const ofServer = optionsOf("server", "start");
const ofWorker = optionsOf("worker");

test("server.env says every option of a node, and the unit hands on what server.env sets", async () => {
  const env = await environmentOf("server.env", { commented: true });
  const ofWorkersAndTerminals = ["--worker", "--activities", "--slots", "--lane", "--namespace", "--ready-line", "--output", "--no-color"];
  const ofClients = ["--version", "--server", "--timeout"];
  const elsewhere = new Set(["--data", ...ofWorkersAndTerminals, ...ofClients]);
  const said = new Set([...env.values()].flatMap(optionsIn));
  expect([...ofServer].filter((option) => !said.has(option) && !elsewhere.has(option))).toEqual([]);
  const [start = ""] = await unitSettings("hop-server.service", "ExecStart");
  const emptied = (await unitSettings("hop-server.service", "Environment")).flatMap((line) => line.split(" "));
  expect([...start.matchAll(/\$([A-Z_]+)\b/g)].map(([, name]) => name)).toEqual([...env.keys()]);
  expect(emptied).toEqual([...env.keys()].map((name) => `${name}=`));
});

test("worker.env says every option of a worker, and the unit hands on what worker.env sets", async () => {
  const env = await environmentOf("worker.env", { commented: true });
  const elsewhere = ["--mode", "--id", "--server", "--namespace", "--ready-line", "--output", "--no-color", "--timeout", "--version"];
  const said = new Set([...env.values()].flatMap(optionsIn));
  expect([...ofWorker].filter((option) => !said.has(option) && !elsewhere.includes(option))).toEqual([]);
  const [start = ""] = await unitSettings("hop-worker@.service", "ExecStart");
  expect([...start.matchAll(/\$([A-Z_]+)\b/g)].map(([, name]) => `${name}=`)).toEqual(
    [...env.keys()].filter((name) => !name.startsWith("HOP_")).map((name) => `${name}=`),
  );
});

const commands: readonly (readonly [file: string, options: ReadonlySet<string>])[] = [
  ["deploy/systemd/server.env", new Set([...ofServer, "--help"])],
  ["deploy/systemd/worker.env", ofWorker],
  ["deploy/helm/hopskip/templates/nodes.yaml", ofServer],
  ["deploy/helm/hopskip/templates/workers.yaml", ofWorker],
  ["deploy/helm/hopskip/templates/cluster-init.yaml", new Set([...optionsOf("cluster", "init"), "--wait"])],
];

test.each(commands)("%s names only options that exist", async (file, options) => {
  const named = optionsIn(await readSource(file));
  expect(named.length).toBeGreaterThan(0);
  expect(named.filter((option) => !options.has(option))).toEqual([]);
});

test("the image's and the compose file's commands name only options that exist", async () => {
  const image = [...(await readSource("deploy/docker/Dockerfile")).matchAll(/^CMD \["server".*$/gm)].join("\n");
  const compose = [...(await readSource("deploy/docker/compose.yaml")).matchAll(/^\s+command: server .*$/gm)].join("\n");
  for (const text of [image, compose]) {
    expect(optionsIn(text)).toContain("--listen");
    expect(optionsIn(text).filter((option) => !ofServer.has(option))).toEqual([]);
  }
});

test("whatever the image's build copies is there, is sent to it, and is all that the executable is made of", async () => {
  const dockerfile = await readSource("deploy/docker/Dockerfile");
  const copied = [...dockerfile.matchAll(/^COPY (?!--from)(?:--\S+ )?(.+) \S+$/gm)].flatMap(([, paths = ""]) => paths.split(" "));
  const sent = [...(await readSource("deploy/docker/Dockerfile.dockerignore")).matchAll(/^!(.+)$/gm)].map(([, path]) => path as string);
  expect(copied.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  expect(copied.toSorted()).toEqual(sent.toSorted());
  const [, sources = ""] = /const executableSources = \[\s*"\{([^}]+)\}/.exec(await readSource("scripts/build.ts")) ?? [];
  expect(sources.split(",").filter((folder) => !copied.includes(folder))).toEqual([]);
});

type Tree = { readonly [name: string]: unknown };
const isTree = (value: unknown): value is Tree => typeof value === "object" && value !== null && !Array.isArray(value);

/** Paths of all values, such as `worker.image.tag`. */
function pathsOf(tree: Tree, prefix = ""): string[] {
  return Object.entries(tree).flatMap(([name, value]) =>
    isTree(value) && Object.keys(value).length > 0 ? pathsOf(value, `${prefix}${name}.`) : [`${prefix}${name}`],
  );
}

/** What the schema says of a path; undefined where it knows none. */
function schemaAt(schema: Tree, path: string): Tree | undefined {
  let at: Tree | undefined = schema;
  for (const name of path.split(".")) {
    if (at === undefined) return undefined;
    if (at.properties === undefined) return at;
    at = (at.properties as Tree)[name] as Tree | undefined;
  }
  return at;
}

test("each value of the chart is in its schema and in a template, and templates use no other", async () => {
  const values = Bun.YAML.parse(await readSource("deploy/helm/hopskip/values.yaml")) as Tree;
  const schema = JSON.parse(await readSource("deploy/helm/hopskip/values.schema.json")) as Tree;
  const templates = await Promise.all(filesLike("deploy/helm/hopskip/templates/*").map(readSource));
  const used = new Set([...templates.join("\n").matchAll(/\.Values\.([\w.]+)/g)].map(([, path]) => path as string));
  const paths = pathsOf(values);
  expect(paths.filter((path) => schemaAt(schema, path) === undefined)).toEqual([]);
  expect(paths.filter((path) => ![...used].some((each) => path === each || path.startsWith(`${each}.`)))).toEqual([]);
  expect([...used].filter((each) => !paths.some((path) => path === each || path.startsWith(`${each}.`)))).toEqual([]);
});

test("versions are the product's", async () => {
  const { version } = JSON.parse(await readSource("package.json")) as { version: string };
  const chart = Bun.YAML.parse(await readSource("deploy/helm/hopskip/Chart.yaml")) as Tree;
  expect(chart.appVersion).toBe(version);
  for (const file of ["deploy/docker/Dockerfile", "deploy/docker/compose.yaml"])
    expect([...(await readSource(file)).matchAll(/\bhopskip(?:-worker)?:(\d[\w.]*)/g)].every(([, tag]) => tag === version)).toBe(true);
});
