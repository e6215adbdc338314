/**
 * First step of every `npm run …`: brings a fresh clone to the point where the task can run.
 *
 * Plain JavaScript for Node 20 or later, without dependencies. Installs what the lock file names
 * (again when it has changed), builds what is stale, then hands over to the task's own script,
 * which runs on Bun. `HOP_INSTALL=never` takes `node_modules` as it is.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import { delimiter, join, sep } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Task → script, and whether it needs the executable. Arguments are handed on as they are. */
const tasks = {
  start: { script: "examples/orders/main.ts", built: true },
  test: { script: "scripts/test.ts", built: true },
  build: { script: "scripts/build.ts", compiler: true },
  check: { script: "scripts/check.ts" },
  fix: { script: "scripts/fix.ts" },
  gen: { script: "scripts/gen.ts" },
  sim: { script: "scripts/sim.ts" },
  chaos: { script: "scripts/chaos.ts", built: true },
  bench: { script: "scripts/bench.ts", built: true },
};

const say = (text) => process.stderr.write(`hopskip: ${text}\n`);

/** Ends this process; a test run that did not come to its tests has a last line too. */
function end(code) {
  if (process.argv[2] === "test") console.log("0 passed, 1 failed");
  process.exit(code);
}

function fail(text) {
  say(text);
  end(1);
}

/** Runs a command with its output shown; ends this process with its exit code where it fails. */
function run(command, args, env = process.env) {
  const result = spawnSync(command, args, { cwd: root, stdio: "inherit", env });
  if (result.error) fail(`Cannot run ${command}: ${result.error.message}`);
  if (result.status !== 0) end(result.status ?? 128);
}

/** Runs the task itself and ends as it ends; signals are the task's to answer. */
function hand(command, args) {
  const child = spawn(command, args, { cwd: root, stdio: "inherit" });
  // A terminal sends SIGINT to the whole group, so the task has it already.
  process.on("SIGINT", () => {});
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => fail(`Cannot run ${command}: ${error.message}`));
  child.on("exit", (code, signal) => process.exit(code ?? (signal === "SIGINT" ? 130 : 128)));
}

/** `npm run` puts node_modules/.bin first, where another Node may lie that an install removes. */
function outerEnvironment() {
  const path = (process.env.PATH ?? "").split(delimiter).filter((dir) => !dir.includes(`node_modules${sep}.bin`));
  return { ...process.env, PATH: path.join(delimiter) };
}

function checkPlatform() {
  const major = Number(process.versions.node.split(".")[0]);
  if (major < 20) fail(`Needs Node 20 or later, this is ${process.version}. Install it from https://nodejs.org and try again`);
  if (process.platform !== "linux" || process.arch !== "x64") {
    fail(`Builds on Linux x64, this is ${process.platform} ${process.arch}. Use a container or a virtual machine`);
  }
}

function checkCompiler() {
  const source = "#include <concepts>\n#include <string>\nstatic_assert(std::same_as<int, int>);\nint main() { std::string s; }\n";
  const result = spawnSync("g++", ["-std=c++20", "-fsyntax-only", "-x", "c++", "-"], { input: source, encoding: "utf8" });
  if (result.status === 0) return;
  const why =
    result.error?.code === "ENOENT"
      ? "is not installed"
      : `can't compile C++20: ${(result.stderr || result.error?.message || "").split("\n")[0]}`;
  fail(`Needs a C++20 compiler to build the V8 host, but g++ ${why}. Install it (Debian and Ubuntu: apt install g++) and try again`);
}

/** What differs between the lock file and what lies in node_modules, or undefined. */
function staleInstall() {
  const hidden = join(root, "node_modules", ".package-lock.json");
  if (!existsSync(hidden)) return "node_modules is missing";
  const wanted = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")).packages;
  const found = JSON.parse(readFileSync(hidden, "utf8")).packages;
  for (const [name, entry] of Object.entries(wanted)) {
    if (name === "") continue;
    const have = found[name];
    if (have === undefined && entry.optional) continue;
    if (have?.version !== entry.version) return `${name} is ${have?.version ?? "missing"}, the lock file names ${entry.version}`;
    if (have.integrity !== undefined && entry.integrity !== undefined && have.integrity !== entry.integrity)
      return `${name} has another hash than the lock file`;
  }
  return undefined;
}

function install() {
  const stale = staleInstall();
  if (stale === undefined) return;
  if (process.env.HOP_INSTALL === "never") return say(`not installing, though ${stale}`);
  say(`installing dependencies (${stale}) …`);
  run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], outerEnvironment());
}

const isBun = (file) => {
  if (!existsSync(file) || statSync(file).size < 1_000_000) return false;
  return spawnSync(file, ["--version"], { encoding: "utf8" }).status === 0;
};

/** Path of Bun. Its npm package holds a placeholder until its install script has run, which npm may have been told not to do. */
function bun() {
  const linked = join(root, "node_modules", "bun", "bin", "bun.exe");
  if (isBun(linked)) return linked;
  say("finishing the installation of Bun …");
  spawnSync(process.execPath, ["install.js"], { cwd: join(root, "node_modules", "bun"), stdio: "inherit" });
  for (const file of [
    linked,
    ...["", "-baseline"].map((kind) => join(root, "node_modules", "@oven", `bun-linux-x64${kind}`, "bin", "bun")),
  ]) {
    if (isBun(file)) return file;
  }
  return fail("Cannot run Bun from node_modules/bun. Remove node_modules and try again");
}

const [name = "", ...args] = process.argv.slice(2);
const task = Object.hasOwn(tasks, name)
  ? tasks[name]
  : fail(`Unknown task ${JSON.stringify(name)}. Tasks: ${Object.keys(tasks).join(", ")}`);
checkPlatform();
if (task.compiler || (task.built && !existsSync(join(root, "dist", "v8", "hopv8.node")))) checkCompiler();
install();
if (!existsSync(join(root, task.script))) fail(`Cannot run ${name}: ${task.script} is not there`);
const runtime = bun();
if (task.built) run(runtime, ["scripts/build.ts", "--if-stale"]);
hand(runtime, [task.script, ...args]);
