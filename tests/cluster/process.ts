/**
 * One process of the compiled executable under test: its output by lines, waiting for one of
 * them, and its end. It leads a process group of its own, so that what it started ends with it.
 */
import type { Subprocess } from "bun";
import { until } from "../until.ts";

export interface LaunchOptions {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whole standard input; none when unset. */
  readonly input?: string | Uint8Array;
}

/** What is still running, ended with the test process whatever happens to it. */
const running = new Set<HopProcess>();
process.on("exit", () => {
  for (const each of running) each.signalGroup("SIGKILL");
});

export class HopProcess {
  readonly command: readonly string[];
  /** Everything written so far. */
  stdout = "";
  stderr = "";
  /** Exit code, or 128 + signal as a shell says it; undefined while it runs. */
  code: number | undefined;
  /** Resolves with the code when the process has ended and its output was read. */
  readonly exited: Promise<number>;
  readonly #child: Subprocess<"pipe" | "ignore" | Uint8Array, "pipe", "pipe">;

  constructor(command: readonly string[], { cwd, env, input }: LaunchOptions) {
    this.command = command;
    const stdin = input === undefined ? "ignore" : typeof input === "string" ? Buffer.from(input) : input;
    this.#child = Bun.spawn([...command], { cwd, env: { ...env }, stdin, stdout: "pipe", stderr: "pipe", detached: true });
    running.add(this);
    this.exited = this.#watch();
  }

  get pid(): number {
    return this.#child.pid;
  }

  async #watch(): Promise<number> {
    const read = async (from: ReadableStream<Uint8Array>, into: "stdout" | "stderr"): Promise<void> => {
      const decoder = new TextDecoder();
      for await (const chunk of from) this[into] += decoder.decode(chunk, { stream: true });
    };
    const outputs = [read(this.#child.stdout, "stdout"), read(this.#child.stderr, "stderr")];
    const code = await this.#child.exited;
    // What it started may still hold the pipes: it must not outlive its parent here.
    this.signalGroup("SIGKILL");
    await Promise.all(outputs);
    running.delete(this);
    this.code = code;
    return code;
  }

  /** First match of `pattern` in standard output, else in standard error; throws with all output where the process ends first. */
  line(pattern: RegExp, withinMs = 30_000): Promise<RegExpExecArray> {
    return until(
      () => {
        const match = pattern.exec(this.stdout) ?? pattern.exec(this.stderr);
        if (match !== null) return match;
        if (this.code !== undefined) throw new Error(`${this.#title()} ended with code ${this.code} before ${pattern}\n${this.#report()}`);
        return undefined;
      },
      { withinMs, what: () => `${pattern} in the output of ${this.#title()}\n${this.#report()}` },
    );
  }

  /** Sends a signal to the process alone. */
  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  signalGroup(name: NodeJS.Signals): void {
    try {
      process.kill(-this.#child.pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  }

  /** Ends it without warning, as a power cut would end it. Resolves when it is gone. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.exited;
  }

  /** Asks it to end, and resolves with its exit code. Throws with its output where it does not. */
  async stop(withinMs = 30_000): Promise<number> {
    this.signal("SIGTERM");
    await until(() => this.code !== undefined, { withinMs, what: () => `${this.#title()} to end\n${this.#report()}` });
    return this.exited;
  }

  #title(): string {
    return `hop ${this.command.slice(1).join(" ")}`;
  }

  #report(): string {
    return `--- stdout\n${this.stdout}--- stderr\n${this.stderr}`;
  }
}
