/**
 * The product as it is measured: the compiled executable as server and worker, on fresh data,
 * driven by the client through one stream.
 *
 * Two configurations. `default`: server and worker are two processes. `embedded`: the worker runs
 * in the server's process. In both, workflow code runs in a V8 process of the worker.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { HopClient } from "#sdk/client";
import { capture, root } from "../command.ts";
import { now } from "./clock.ts";
import { freshName, payload } from "./load.ts";
import { LineReader, Marks, marksVariable } from "./marks.ts";
import { childrenOf } from "./process-usage.ts";

export const configs = ["default", "embedded"] as const;
export type Config = (typeof configs)[number];

/** A process of the product, for what it uses. */
export interface Member {
  readonly role: "server" | "worker" | "v8";
  readonly pid: number;
}

/** `BENCH_EXECUTABLE` names another build, to measure a change against what was before it. */
export const executable = process.env.BENCH_EXECUTABLE ?? join(root, "dist", "hop");
const workflowFile = join(root, "scripts", "bench", "workflows.ts");
export const activityFile = join(root, "scripts", "bench", "activities.ts");
/** On the disk of the repository, never in a file system that lives in memory. */
const scratch = join(root, "dist", "bench");

export type Child = Subprocess<"ignore", "pipe", "pipe">;

/** Nothing of the caller's environment that steers the executable or Bun reaches what is measured. */
function environment(own: Readonly<Record<string, string>>): Record<string, string> {
  const inherited = Object.entries(process.env).filter(([name, value]) => value !== undefined && !/^(HOP|BUN|NODE)_/.test(name));
  return {
    ...(Object.fromEntries(inherited) as Record<string, string>),
    HOP_CACHE: join(root, "dist", "cache", "hop"),
    NO_COLOR: "1",
    ...own,
  };
}

const folders = new Set<string>();
const live = new Set<Child>();
process.on("exit", () => {
  for (const child of live) child.kill("SIGKILL");
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Ports that were free a moment ago, each of them once. */
export function freePorts(count: number): number[] {
  const listeners = Array.from({ length: count }, () => Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } }));
  return listeners.map((listener) => {
    const { port } = listener;
    listener.stop(true);
    return port;
  });
}

/** An empty folder for one measurement; what is left of it goes with this process. */
export function freshFolder(): string {
  mkdirSync(scratch, { recursive: true });
  const folder = mkdtempSync(join(scratch, "run-"));
  folders.add(folder);
  return folder;
}

/** Shows what a process has to say, but for what it says in good order. */
async function passOn(stderr: ReadableStream<Uint8Array>): Promise<void> {
  const reader = new LineReader();
  const decoder = new TextDecoder();
  for await (const bytes of stderr) {
    for (const line of reader.lines(decoder.decode(bytes, { stream: true }))) if (!line.includes('"level":"info"')) console.error(line);
  }
}

/** The first line of its output and when it came. Rejects when the process ends before. */
export async function readyLine(child: Child, what: string): Promise<{ line: string; atMs: number }> {
  const decoder = new TextDecoder();
  let text = "";
  const reader = child.stdout.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`The ${what} ended with code ${await child.exited} before it was ready`);
    const atMs = now();
    text += decoder.decode(value, { stream: true });
    const end = text.indexOf("\n");
    if (end >= 0) return { line: text.slice(0, end), atMs };
  }
}

export function spawn(args: readonly string[], folder: string, own: Readonly<Record<string, string>>): Child {
  const child: Child = Bun.spawn([executable, ...args], {
    cwd: folder,
    env: environment(own),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  void passOn(child.stderr);
  live.add(child);
  void child.exited.then(() => live.delete(child));
  return child;
}

/** An address in a ready line, which is JSON or words of the form `name=value`. */
export function addressIn(line: string, name: string): string {
  const found = new RegExp(`${name}"?[=:] *"?([^" ,}]+)`).exec(line)?.[1];
  if (found === undefined) throw new Error(`The ready line names no ${name} address: ${line}`);
  return found;
}

/** Deploys the workflows that are measured. */
export async function deployTo(servers: string, folder: string): Promise<void> {
  const { ok, output } = await capture([executable, "deploy", workflowFile, "--server", servers], folder);
  if (!ok) throw new Error(`Cannot deploy the workflows to measure: ${output}`);
}

/** One process of the executable in the role of a server. */
export class ServerProcess {
  readonly child: Child;
  readonly grpc: string;
  readonly http: string;
  /** From the start of the process to its line that says it is ready. */
  readonly readyMs: number;

  private constructor(child: Child, line: string, readyMs: number) {
    this.child = child;
    this.grpc = addressIn(line, "grpc");
    this.http = addressIn(line, "http");
    this.readyMs = readyMs;
  }

  static async start(
    config: Config,
    folder: string,
    before?: ServerProcess,
    env: Readonly<Record<string, string>> = {},
  ): Promise<ServerProcess> {
    const listen = ["--listen", before?.grpc ?? "127.0.0.1:0", "--http", before?.http ?? "127.0.0.1:0"];
    const worker = config === "embedded" ? ["--worker", "--activities", activityFile] : [];
    const args = ["server", "start", "--data", join(folder, "data"), ...listen, "--log-level", "warn", "--ready-line", ...worker];
    const begunMs = now();
    const child = spawn(args, folder, env);
    const { line, atMs } = await readyLine(child, "server");
    return new ServerProcess(child, line, atMs - begunMs);
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.child.exited;
  }

  async stop(): Promise<void> {
    this.child.kill("SIGTERM");
    await this.child.exited;
  }
}

export class Product implements AsyncDisposable {
  readonly config: Config;
  readonly marks: Marks;
  client: HopClient;
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;
  #server: ServerProcess;
  #worker: Child | undefined;

  private constructor(config: Config, folder: string, marks: Marks, server: ServerProcess) {
    this.config = config;
    this.marks = marks;
    this.#folder = folder;
    this.#env = { [marksVariable]: marks.path };
    this.#server = server;
    this.client = HopClient.connect({ address: server.grpc });
  }

  /** A server on fresh data with a worker, that has run its first workflow. */
  static async up(config: Config): Promise<Product> {
    if (!existsSync(executable)) throw new Error("Cannot measure: dist/hop is not there, run npm run build");
    const folder = freshFolder();
    const marks = new Marks(join(folder, "marks.sock"));
    const server = await ServerProcess.start(config, folder, undefined, { [marksVariable]: marks.path });
    const product = new Product(config, folder, marks, server);
    try {
      await deployTo(server.grpc, folder);
      if (config === "default") await product.#startWorker();
      await product.client.execute("steps", { n: 1, payload }, { instance: freshName("warm") });
      return product;
    } catch (error) {
      await product[Symbol.asyncDispose]();
      throw error;
    }
  }

  async start(type: string, id: string, input: unknown): Promise<void> {
    await this.client.start(type, input, { instance: id });
  }

  /** Starts a run and waits for its result. */
  async execute(type: string, id: string, input: unknown): Promise<void> {
    await this.client.execute(type, input, { instance: id });
  }

  async signal(id: string, name: string, value: unknown): Promise<void> {
    await this.client.handle({ instance: id }).signal(name, value);
  }

  /** All processes of the product that run now. */
  members(): Member[] {
    const server = this.#server.child.pid;
    const found: Member[] = [{ role: "server", pid: server }];
    if (this.#worker !== undefined) found.push({ role: "worker", pid: this.#worker.pid });
    for (const { pid } of [...found]) for (const child of childrenOf(pid)) found.push({ role: "v8", pid: child });
    return found;
  }

  get dataFolder(): string {
    return join(this.#folder, "data");
  }

  /** kill -9 of the server, and its start at once. Resolves with when it was ready, on the shared clock. */
  async crash(): Promise<number> {
    await this.#server.kill();
    this.#server = await ServerProcess.start(this.config, this.#folder, this.#server, this.#env);
    return now();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    this.#worker?.kill("SIGKILL");
    await this.#worker?.exited;
    await this.#server.kill();
    this.marks.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #startWorker(): Promise<void> {
    const args = ["worker", "--server", this.#server.grpc, "--activities", activityFile, "--ready-line"];
    this.#worker = spawn(args, this.#folder, this.#env);
    await readyLine(this.#worker, "worker");
  }
}
