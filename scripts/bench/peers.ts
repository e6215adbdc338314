/**
 * Runs the same workloads on other systems, where a folder with their harness lies beside the
 * repository (`BENCH_PEERS` names another one): `bench.sh PEER CONFIG WORKLOADS RUNS` writes
 * results in the same form. Without it, or where one is not installed, says so.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { root } from "../command.ts";
import { LineReader } from "./marks.ts";
import type { Result } from "./result.ts";

const peers = ["restate", "dbos", "temporal"];
/** Next to the repository's own folder. */
const besideRepository = join(root, "..", "shared", "peers");
export const peersFolder = process.env.BENCH_PEERS ?? besideRepository;

export async function measurePeers(
  workloads: readonly string[],
  options: { runs: number; env: Record<string, string> },
  sink: (result: Result) => void,
): Promise<void> {
  const folder = peersFolder;
  const script = join(folder, "bench.sh");
  if (!existsSync(script)) return console.error("Not measured: other systems. Their harness is not there; BENCH_PEERS names its folder");
  for (const peer of peers) {
    if (!existsSync(join(folder, peer, "node_modules"))) {
      console.error(`Not measured: ${peer}, which is not installed; run ./setup.sh runtime ${peer} in the harness's folder`);
      continue;
    }
    const child = Bun.spawn([script, peer, "default", workloads.join(","), String(options.runs)], {
      cwd: folder,
      env: { ...process.env, ...options.env },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "inherit",
    });
    const reader = new LineReader();
    const decoder = new TextDecoder();
    for await (const bytes of child.stdout) {
      for (const line of reader.lines(decoder.decode(bytes, { stream: true }))) if (line.startsWith("{")) sink(JSON.parse(line) as Result);
    }
    if ((await child.exited) !== 0) console.error(`${peer} ended with code ${child.exitCode}`);
  }
}
