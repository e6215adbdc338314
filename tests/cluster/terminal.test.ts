/** What a person at a terminal sees, and a pipe does not: progress, colour, tables that fit. Runs in tmux. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Cli } from "./cli-fixture.ts";
import { Cluster, executable, until } from "./harness.ts";

const hasTmux = Bun.which("tmux") !== null;
const esc = "\u001b";

let cluster: Cluster;
let cli: Cli;
beforeAll(async () => {
  cluster = new Cluster();
  cli = await Cli.start(cluster);
}, 60_000);
afterAll(() => cluster[Symbol.asyncDispose]());

/** A terminal of 100 columns that runs one command and then says its exit code. */
class Terminal implements Disposable {
  readonly #socket: string;

  constructor(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.#socket = `hop-test-${process.pid}-${crypto.randomUUID().slice(0, 8)}`;
    const quoted = [executable, ...args].map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
    const set = Object.entries({ HOP_SERVER: cli.server.grpc, ...env })
      .map(([name, value]) => `${name}='${value}'`)
      .join(" ");
    const script = `trap : INT; unset NO_COLOR FORCE_COLOR; ${set} ${quoted}; echo "code=$?"; exec cat`;
    this.#tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", "sh", "-c", script);
  }

  #tmux(...args: readonly string[]): string {
    const { exitCode, stdout, stderr } = Bun.spawnSync(["tmux", "-L", this.#socket, ...args], {
      cwd: cluster.folder,
      env: { ...process.env, TERM: "xterm-256color" },
    });
    if (exitCode !== 0) throw new Error(`tmux ${args[0]} failed: ${stderr.toString()}`);
    return stdout.toString();
  }

  /** The screen, with its colours as escape codes. */
  screen(): string {
    return this.#tmux("capture-pane", "-e", "-p");
  }

  /** Waits until the screen matches. */
  shows(pattern: RegExp): Promise<string> {
    return until(
      () => {
        const screen = this.screen();
        return pattern.test(screen) ? screen : undefined;
      },
      { what: () => `${pattern} on the screen:\n${this.screen()}` },
    );
  }

  keys(...keys: readonly string[]): void {
    this.#tmux("send-keys", ...keys);
  }

  [Symbol.dispose](): void {
    Bun.spawnSync(["tmux", "-L", this.#socket, "kill-server"]);
  }
}

describe.skipIf(!hasTmux)("on a terminal (skipped where tmux is not installed)", () => {
  test("a wait shows progress in colour, Ctrl-C ends it with 130 and takes the line away", async () => {
    using terminal = new Terminal(["run", "naps", "--input", "3600000", "--instance", "watched", "--follow"]);
    const screen = await terminal.shows(/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]\S* default:watched/);
    expect(screen).toContain(esc);
    terminal.keys("C-c");
    const after = await terminal.shows(/code=\d+/);
    expect(after).toContain("code=130");
    expect(after).toContain("Stopped waiting; default:watched goes on");
    expect(after).not.toMatch(/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]/);
  });

  test("an act by filter asks first, and a no changes nothing", async () => {
    for (const name of ["asked-1", "asked-2"]) await cli.started("collects", "--instance", name);
    for (const [answer, said] of [
      ["n", "Nothing was done"],
      ["y", "Paused default:asked-1"],
    ] as const) {
      using terminal = new Terminal(["workflow", "pause", "--type", "collects", "--reason", "wait"]);
      await terminal.shows(/Pause 2 runs of collects in namespace default that are running\?/);
      terminal.keys(answer, "Enter");
      expect(await terminal.shows(/code=0/)).toContain(said);
    }
    expect((await cli.ok(["workflow", "list", "--status", "paused", "-o", "ids"])).split("\n").sort().slice(1)).toEqual([
      "default:asked-1",
      "default:asked-2",
    ]);
  });

  test("many starts show a count, then a summary", async () => {
    await Bun.write(`${cluster.folder}/lines.jsonl`, Array.from({ length: 300 }, (_, i) => i).join("\n"));
    using terminal = new Terminal(["run", "echo", "--input-lines", "lines.jsonl"]);
    const screen = await terminal.shows(/code=0/);
    expect(screen).toMatch(/Started 300 runs in/);
    expect(screen).not.toContain("default:wf_");
  });

  test("a table has colours, and never cuts a run's id", async () => {
    const instance = "long-".repeat(30);
    await cli.started("echo", `--instance=${instance}`);
    using terminal = new Terminal(["workflow", "list", "--type", "echo", "--limit", "1"]);
    const screen = await terminal.shows(/code=0/);
    expect(screen).toContain(`${esc}[1m`);
    expect(screen.replaceAll("\n", "")).toContain(`default:${instance}`);
  });

  test("NO_COLOR and --no-color take the colours away", async () => {
    for (const [args, env] of [
      [["workflow", "list"], { NO_COLOR: "1" }],
      [["workflow", "list", "--no-color"], {}],
    ] as const) {
      using terminal = new Terminal(args, env);
      expect(await terminal.shows(/code=0/)).not.toContain(esc);
    }
  });
});

test("a pipe gets neither progress nor colour", async () => {
  await cli.started("echo");
  const listed = await cli.run(["workflow", "list"], { env: { NO_COLOR: "" } });
  const followed = await cli.run(["run", "naps", "--input", "300", "--follow"], { env: { NO_COLOR: "" } });
  for (const { stdout, stderr } of [listed, followed]) expect(stdout + stderr).not.toContain(esc);
  expect(followed.stderr.trimEnd().split("\n")).toHaveLength(1);
});
