/**
 * Faults in the system calls of a running process, injected by strace.
 *
 * strace counts calls for each thread, so `when: 5` strikes at the fifth matching call of the
 * first thread that comes so far; which call of all that was is read from its own log.
 */
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HopProcess, until } from "#tests/cluster";

/** Calls by which bytes reach a log that is opened for synchronous writes, and its folder. */
export const writeCalls = ["pwrite64", "pwritev", "fsync", "fdatasync"] as const;

/** A call that is seen unfinished so many times in a row is held. */
const heldPolls = 40;

export interface Injection {
  /** System calls that count and that the fault may strike. */
  readonly calls: readonly string[];
  /** What strace does: `signal=KILL`, `error=EIO`, `retval=0`, `delay_enter=50ms`. Left out: it only watches. */
  readonly fault?: string;
  /** Which calls of a thread are struck: `3`, `3..6`, `3+`. */
  readonly when?: string;
  /** Only calls on these files. */
  readonly paths: readonly string[];
}

export function straceArgs({ calls, fault, when, paths }: Injection, output: string): string[] {
  const names = calls.join(",");
  const inject = fault === undefined ? [] : ["-e", `inject=${names}:${fault}${when === undefined ? "" : `:when=${when}`}`];
  return ["strace", "-f", "-o", output, "-e", `trace=${names}`, ...paths.flatMap((path) => ["-P", path]), ...inject];
}

/** Why faults can't be injected here, or undefined. */
export function whyNoStrace(): string | undefined {
  if (Bun.which("strace") === null) return "strace is not installed";
  const { exitCode, stderr } = Bun.spawnSync(["strace", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"]);
  return exitCode === 0 ? undefined : `strace may not trace here: ${stderr.toString().trim().split("\n")[0]}`;
}

export class Strace implements AsyncDisposable {
  readonly #folder: string;
  readonly #output: string;
  readonly #process: HopProcess;

  private constructor(folder: string, output: string, traced: HopProcess) {
    this.#folder = folder;
    this.#output = output;
    this.#process = traced;
  }

  /** Attaches to all threads of a process; resolves when each call is seen. */
  static async attach(pid: number, injection: Injection): Promise<Strace> {
    const folder = mkdtempSync(join(tmpdir(), "hop-strace-"));
    const output = join(folder, "calls");
    closeSync(openSync(output, "w"));
    const process = new HopProcess([...straceArgs(injection, output), "-p", String(pid)], {
      cwd: folder,
      env: { PATH: globalThis.process.env.PATH },
    });
    const strace = new Strace(folder, output, process);
    await process.line(/attached/);
    return strace;
  }

  /** Lines of the calls seen so far, in order. */
  calls(): string[] {
    return readFileSync(this.#output, "utf8")
      .split("\n")
      .filter((line) => /^\d+ +(\w+\(|<\.\.\.)/.test(line));
  }

  /** Place among all calls of the first one that was struck, from 1; undefined = none yet. */
  struckAt(): number | undefined {
    const begun = this.calls().filter((line) => !line.includes("<... "));
    const at = this.calls().findIndex((line) => line.includes("(INJECTED)") || line.includes("(DELAYED)"));
    if (at < 0) return undefined;
    const calls = this.calls();
    const line = calls[at] as string;
    if (!line.includes("<... ")) return begun.indexOf(line) + 1;
    const thread = line.split(" ")[0] as string;
    const start = calls.slice(0, at).findLastIndex((each) => each.startsWith(`${thread} `) && each.includes("unfinished"));
    const before = calls.slice(0, start < 0 ? at : start).filter((each) => !each.includes("<... "));
    return before.length + 1;
  }

  /** Resolves when a call was held back for so long that nothing else can be in its way. */
  async untilHeld(): Promise<void> {
    let seen = "";
    let times = 0;
    await until(() => {
      const text = readFileSync(this.#output, "utf8");
      times = text === seen && text !== "" && !text.endsWith("\n") ? times + 1 : 0;
      seen = text;
      return times >= heldPolls;
    });
  }

  /** Calls that began. */
  get count(): number {
    return this.calls().filter((line) => !line.includes("<... ")).length;
  }

  untilStruck(withinMs = 20_000): Promise<number> {
    return until(() => this.struckAt(), { withinMs, what: () => `the fault to strike; ${this.count} calls were seen` });
  }

  get exited(): Promise<number> {
    return this.#process.exited;
  }

  /** Ends strace itself; a held call of a process that was killed before is never made. */
  kill(): Promise<void> {
    return this.#process.kill();
  }

  /** Lets go of the process, which goes on as if nothing had been there. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.code === undefined) this.#process.signal("SIGINT");
    await this.#process.exited;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
