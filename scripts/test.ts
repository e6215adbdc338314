/**
 * All checks, then all tests, two test files at a time. The last line is
 * `N passed, N failed`, with `, N skipped` when some were; each skipped test says in its name
 * what it needs. Arguments are handed to `bun test` (a path, `-t NAME`), without the checks.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { runSteps, steps } from "./check.ts";
import { bun, root, show } from "./command.ts";

interface Totals {
  passed: number;
  failed: number;
  skipped: string[];
}

/** A hang is found after this long; a busy machine is given its time. */
const testTimeoutMs = 120_000;
const runMsMax = 40 * 60_000;

const plain = (text: string) =>
  text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&apos;", "'").replaceAll("&amp;", "&");

/** Totals of a JUnit report as Bun writes it: one `testcase` element a test. */
export function totalsOf(report: string): Totals {
  const totals: Totals = { passed: 0, failed: 0, skipped: [] };
  for (const [, attributes = "", selfClosed, body = ""] of report.matchAll(/<testcase\b([^>]*?)(\/>|>([\s\S]*?)<\/testcase>)/g)) {
    const attribute = (name: string) => plain(new RegExp(`\\b${name}="([^"]*)"`).exec(attributes)?.[1] ?? "");
    if (selfClosed === "/>" || !/<(skipped|failure|error)\b/.test(body)) totals.passed++;
    else if (body.includes("<skipped")) totals.skipped.push(`${attribute("file")}: ${attribute("name")}`);
    else totals.failed++;
  }
  return totals;
}

/**
 * A test that never gives control back can't be timed out by its own process. When the run has
 * taken far too long, its workers are ended, and the runner names the files they were in.
 */
function endHangs(runner: Subprocess): void {
  const timer = setInterval(() => {
    const children = readFileSync(`/proc/${runner.pid}/task/${runner.pid}/children`, "utf8").trim().split(" ");
    for (const child of children.filter((pid) => pid !== "")) process.kill(Number(child), "SIGKILL");
  }, runMsMax);
  void runner.exited.then(() => clearInterval(timer));
}

async function runTests(args: readonly string[]): Promise<Totals> {
  const folder = mkdtempSync(join(tmpdir(), "hop-test-"));
  const report = join(folder, "junit.xml");
  const timings = join(root, "dist", "test-timings.json");
  mkdirSync(join(root, "dist"), { recursive: true });
  try {
    const command = [bun, "test", "--only-failures", "--parallel=2", `--timeout=${testTimeoutMs}`];
    const reports = [`--timings=${timings}`, "--update-timings", "--reporter=junit", `--reporter-outfile=${report}`];
    const code = await show([...command, ...reports, ...args], { onStart: endHangs });
    const totals = totalsOf(readFileSync(report, "utf8"));
    // A file that does not load, or a worker that died, is in no test case.
    if (code !== 0 && totals.failed === 0) totals.failed++;
    return totals;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  const args = process.argv.slice(2);
  const begun = performance.now();
  const checks = args.length > 0 ? { passed: 0, failed: 0 } : await runSteps(steps);
  const tests = await runTests(args);
  for (const name of tests.skipped) console.log(`skipped ${name}`);
  const failed = checks.failed + tests.failed;
  console.log(`${((performance.now() - begun) / 1000).toFixed(0)} s; of these, ${checks.passed + checks.failed} are checks of the sources`);
  console.log(
    `${checks.passed + tests.passed} passed, ${failed} failed${tests.skipped.length > 0 ? `, ${tests.skipped.length} skipped` : ""}`,
  );
  process.exitCode = failed === 0 ? 0 : 1;
}
