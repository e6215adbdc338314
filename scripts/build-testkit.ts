/**
 * Builds dist/testkit: `@hopskip/testing`, and the packages that its tests import beside it, as
 * plain JavaScript for Node 20 and later, Bun and vitest. `npm install --save-dev FOLDER/testing
 * FOLDER/runtime FOLDER/activity FOLDER/client` puts them into a project.
 */
import { cpSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./command.ts";
import { type packages, packageTypes, typesFile } from "./gen-runtime-types.ts";

const out = join(root, "dist/testkit");
const descriptions: Readonly<Record<string, string>> = {
  runtime: "What Hopskip workflows and activities are written with",
  activity: "What Hopskip activities are written against",
  testing: "Hopskip workflows in a test's own process: virtual time, mock activities, replay, crashes",
};

type Package = (typeof packages)[number];

/** The client's code needs more than a test has: of it there are the types only. */
const built: readonly Package[] = ["runtime", "activity", "testing"];

async function buildPackage(name: Package, folder: string, types: string): Promise<void> {
  const result = await Bun.build({
    entrypoints: [join(root, "sdk/typescript", name, "index.ts")],
    target: "node",
    format: "esm",
    throw: false,
  });
  if (!result.success) throw new Error(`Cannot build @hopskip/${name}:\n${result.logs.map(String).join("\n")}`);
  const version = (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string }).version;
  const about = { name: `@hopskip/${name}`, version, description: descriptions[name], license: "Apache-2.0", type: "module" };
  const exports = { ".": { types: "./index.d.ts", default: "./index.js" } };
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "index.js"), (await result.outputs[0]?.text()) ?? "");
  writeFileSync(join(folder, "index.d.ts"), types);
  writeFileSync(
    join(folder, "package.json"),
    `${JSON.stringify({ ...about, engines: { node: ">=20" }, sideEffects: false, exports }, null, 2)}\n`,
  );
}

/** Builds them all; the folder appears whole. */
export async function buildTestkit(): Promise<string> {
  const aside = `${out}.${process.pid}`;
  rmSync(aside, { recursive: true, force: true });
  try {
    const whole = readFileSync(typesFile, "utf8");
    for (const name of built) {
      // What the kit says of others it takes from their declarations, installed or not.
      const types = name === "testing" ? `${packageTypes("client", whole)}\n${packageTypes("testing", whole)}` : packageTypes(name, whole);
      await buildPackage(name, join(aside, name), types);
    }
    cpSync(join(root, "dist/v8/kernel.js"), join(aside, "testing/guest-kernel.js"));
    rmSync(out, { recursive: true, force: true });
    renameSync(aside, out);
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
  return out;
}

if (import.meta.main) console.error(`hopskip: ${(await buildTestkit()).slice(root.length)}`);
