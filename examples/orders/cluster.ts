/** A server and a worker as child processes of the example, killed and started at will. */
import { join } from "node:path";
import type { Subprocess } from "bun";

type Child = Subprocess<"ignore", "pipe", "pipe">;

export class Cluster {
  address = "127.0.0.1:0";
  private http = "127.0.0.1:0";
  private readonly executable: string;
  private readonly folder: string;
  private readonly env: Record<string, string | undefined>;
  private readonly verbose: boolean;
  private server: Child | undefined;
  private worker: Child | undefined;

  constructor(options: { executable: string; folder: string; env: Record<string, string>; verbose: boolean }) {
    this.executable = options.executable;
    this.folder = options.folder;
    this.env = { ...process.env, ...options.env };
    this.verbose = options.verbose;
  }

  /** Starts the server, on the same address and data as before. Returns the milliseconds until it was ready. */
  async startServer(): Promise<number> {
    const before = performance.now();
    const args = ["server", "start", "--data", join(this.folder, "data"), "--listen", this.address, "--http", this.http];
    this.server = this.spawn([...args, "--log-level", "warn", "--ready-line"]);
    const ready = /^ready grpc=(\S+) http=(\S+)$/.exec(await this.firstLine(this.server, "server"));
    this.address = ready?.[1] ?? "";
    this.http = ready?.[2] ?? "";
    return Math.round(performance.now() - before);
  }

  async startWorker(activities: string): Promise<void> {
    this.worker = this.spawn(["worker", "--server", this.address, "--activities", activities, "--ready-line"]);
    await this.firstLine(this.worker, "worker");
  }

  async killServer(): Promise<void> {
    this.server?.kill("SIGKILL");
    await this.server?.exited;
  }

  /** Runs a client command; returns what it printed. Rejects when it fails. */
  async hop(args: readonly string[]): Promise<string> {
    const child = this.spawn([...args], { HOP_SERVER: this.address });
    const [out, err, code] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text(), child.exited]);
    if (code !== 0) throw new Error(`hop ${args.join(" ")} ended with code ${code}: ${err}`);
    return out;
  }

  async stop(): Promise<void> {
    for (const child of [this.worker, this.server]) {
      child?.kill("SIGTERM");
      await child?.exited;
    }
  }

  private spawn(args: string[], env: Record<string, string> = {}): Child {
    return Bun.spawn([this.executable, ...args], {
      cwd: this.folder,
      env: { ...this.env, ...env },
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
  }

  /** The first line that a child prints. Rejects with what it said when it ends before. */
  private async firstLine(child: Child, what: string): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    const reader = child.stdout.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error(`The ${what} did not start: ${await new Response(child.stderr).text()}`);
      text += decoder.decode(value, { stream: true });
      const end = text.indexOf("\n");
      if (end < 0) continue;
      reader.releaseLock();
      void drain(child.stderr, this.verbose);
      return text.slice(0, end);
    }
  }
}

/** Reads on what a child says, so that its pipe never fills; shows it if wanted. */
async function drain(stream: ReadableStream<Uint8Array>, show: boolean): Promise<void> {
  for await (const chunk of stream) if (show) process.stderr.write(chunk);
}
