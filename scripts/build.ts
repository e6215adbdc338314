/**
 * Builds dist/hop, the one executable, after the V8 addon it carries.
 *
 * `--if-stale`: only what its sources make stale, and silent where nothing is. `--release`:
 * smallest form of the embedded parts, which takes a minute more.
 */
import { chmodSync, existsSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { packAssets } from "./asset-pack.ts";
import { buildTestkit } from "./build-testkit.ts";
import { bun, capture, root } from "./command.ts";

const dist = join(root, "dist");
const executable = join(dist, "hop");

export interface ExecutableOptions {
  readonly entry: string;
  readonly outfile: string;
  /** Module to put in the place of cmd/assets/embedded.ts. */
  readonly embedded: string;
}

/** Modules that run in threads of their own: found by their path in the executable, they are entry points too. */
const threads = ["store/segment/sealed/seal-worker.ts"];

/** Compiles `entry` and everything it imports into one file. Throws with the bundler's messages. */
export async function compileExecutable({ entry, outfile, embedded }: ExecutableOptions): Promise<void> {
  const result = await Bun.build({
    entrypoints: [entry, ...threads.map((file) => join(root, file))],
    root,
    target: "bun",
    format: "esm",
    // Each command is a chunk of its own, and bytecode is read lazily: a start pays for what it runs.
    splitting: true,
    bytecode: true,
    minify: true,
    define: { "process.env.NODE_ENV": '"production"' },
    plugins: [
      {
        name: "embedded-assets",
        setup(build) {
          build.onResolve({ filter: /^\.\/embedded\.ts$/ }, ({ importer }) =>
            importer.endsWith("/cmd/assets/assets.ts") ? { path: embedded } : undefined,
          );
          // Its own looks for the addon in node_modules; the executable has it in its cache.
          build.onResolve({ filter: /^@duckdb\/node-bindings$/ }, () => ({ path: join(root, "cmd", "cold", "bindings.cjs") }));
        },
      },
    ],
    // Nothing in the folder where it is started changes what it does.
    compile: { target: "bun-linux-x64", outfile, autoloadDotenv: false, autoloadBunfig: false },
    throw: false,
  });
  if (!result.success) throw new Error(`Cannot build ${outfile}:\n${result.logs.map(String).join("\n")}`);
  chmodSync(outfile, 0o755);
}

/** Hash over the names and bytes of everything that matches. */
function hashOfSources(patterns: readonly string[]): string {
  const hasher = new Bun.CryptoHasher("sha256");
  for (const pattern of patterns) {
    for (const file of [...new Glob(pattern).scanSync({ cwd: root, dot: true })].sort()) {
      if (/\.(test|suite)\.ts$/.test(file)) continue;
      hasher
        .update(`${file}\0`)
        .update(readFileSync(join(root, file)))
        .update("\0");
    }
  }
  return hasher.digest("hex");
}

const executableSources = [
  "{proto,core,store,sdk,worker,node,cmd}/**/*.{ts,tsx,js,cjs,mjs,json,wit,txt}",
  "dist/v8/{hopv8.node,kernel.js,child.cjs}",
  "scripts/{build,build-testkit,asset-pack}.ts",
  "package-lock.json",
  "package.json",
];

/** Runs `make` unless `product` was made from sources with this hash. */
async function unlessFresh(product: string, hash: string, make: () => Promise<void>): Promise<void> {
  const stamp = `${product}.sources`;
  if (existsSync(product) && existsSync(stamp) && readFileSync(stamp, "utf8") === hash) return;
  rmSync(stamp, { force: true });
  await make();
  writeFileSync(stamp, hash);
}

/** The script itself knows what is stale. */
async function buildHost(): Promise<void> {
  if (!existsSync(join(dist, "v8", "hopv8.node"))) console.error("hopskip: compiling the V8 host …");
  const { ok, output } = await capture([bun, "scripts/build-v8.ts"]);
  if (!ok) throw new Error(`Cannot build the V8 host:\n${output}`);
}

async function buildExecutable(release: boolean): Promise<void> {
  console.error("hopskip: building the executable …");
  const begun = performance.now();
  await buildTestkit();
  const embedded = await packAssets(release);
  const aside = `${executable}.${process.pid}.tmp`;
  try {
    await compileExecutable({ entry: join(root, "cmd", "hop.ts"), outfile: aside, embedded });
    // A running one keeps its own file.
    renameSync(aside, executable);
  } finally {
    rmSync(aside, { force: true });
  }
  const megabytes = statSync(executable).size / 1e6;
  console.error(
    `hopskip: ${executable.slice(root.length)}, ${megabytes.toFixed(0)} MB (${((performance.now() - begun) / 1000).toFixed(1)} s)`,
  );
}

if (import.meta.main) {
  const release = process.argv.includes("--release");
  const ifStale = process.argv.includes("--if-stale");
  try {
    await buildHost();
    const hash = `${hashOfSources(executableSources)} ${Bun.version}${release ? " release" : ""}`;
    if (!ifStale) rmSync(`${executable}.sources`, { force: true });
    await unlessFresh(executable, hash, () => buildExecutable(release));
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
