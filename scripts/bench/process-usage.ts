/** What processes use, as Linux counts it: CPU time and memory, of a process with its children. */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** Milliseconds of a clock tick, the unit of /proc/PID/stat. */
const tickMs = 10;

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // The process has ended since.
    return "";
  }
}

/** Processes that `pid` started and that still run, theirs included. */
export function childrenOf(pid: number): number[] {
  let threads: string[] = [];
  try {
    threads = readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
  const own = threads.flatMap((thread) =>
    readOrEmpty(`/proc/${pid}/task/${thread}/children`).trim().split(" ").filter(Boolean).map(Number),
  );
  return own.flatMap((child) => [child, ...childrenOf(child)]);
}

/** CPU time of one process, all its threads included, in milliseconds. */
export function cpuMs(pid: number): number {
  const fields = readOrEmpty(`/proc/${pid}/stat`).split(") ")[1]?.split(" ");
  return fields === undefined ? 0 : (Number(fields[11]) + Number(fields[12])) * tickMs;
}

/** Resident memory of one process in MiB; `pss` counts a page that n processes share as 1/n. */
export function memoryMib(pid: number): { rss: number; pss: number } {
  const text = readOrEmpty(`/proc/${pid}/smaps_rollup`);
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0) / 1024;
  return { rss: field("Rss"), pss: field("Pss") };
}

/** Space that the files below a folder take on the disk, in MiB. */
export function diskMib(folder: string): number {
  let blocks = 0;
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    try {
      blocks += statSync(join(entry.parentPath, entry.name)).blocks;
    } catch {
      // Renamed or removed meanwhile.
    }
  }
  return (blocks * 512) / 2 ** 20;
}
