/**
 * Runs the compiled executable for a test: servers and workers on port 0 in a folder of their
 * own, killed and started again at will, all gone when the test ends.
 *
 *     await using hop = new Cluster();
 *     const server = await hop.server({ args: ["--worker"] });
 *     const { stdout } = await hop.run(["run", "greet", "--follow"], { server });
 *     await server.kill();
 *     await server.restart();
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { HopProcess } from "./process.ts";

export { until } from "../until.ts";
export { HopProcess } from "./process.ts";

/** The executable under test; `npm run build` makes it. */
export const executable = fileURLToPath(new URL("../../dist/hop", import.meta.url));

export interface RunOptions {
  /** Server that client commands speak to; its `grpc` may be a list with commas. */
  readonly server?: { readonly grpc: string };
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string | Uint8Array;
  /** Below the cluster's folder; its root when unset. */
  readonly cwd?: string;
  /** Command that starts it in another place, such as `nsenter` with a namespace: it has to become the executable. */
  readonly through?: readonly string[];
}

export interface ServerOptions {
  /** Added to `hop server start`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Name of the data folder below the cluster's; servers that share one can't run at once. */
  readonly data?: string;
}

export interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export class Cluster implements AsyncDisposable {
  /** Holds all files of the test; removed at the end. */
  readonly folder: string;
  readonly #processes: HopProcess[] = [];

  constructor() {
    if (!existsSync(executable)) throw new Error("Cannot test the executable: dist/hop is not there, run npm run build");
    this.folder = mkdtempSync(join(tmpdir(), "hop-cluster-"));
  }

  /** Starts a process of the executable. Nothing of the caller's environment that steers `hop` or Bun reaches it. */
  launch(args: readonly string[], { server, env, input, cwd, through = [] }: RunOptions = {}): HopProcess {
    const inherited = Object.entries(process.env).filter(([name]) => !/^(HOP|BUN|NODE|XDG)_|^(CI|FORCE_COLOR|DEBUG)$/.test(name));
    const own = { HOP_CACHE: sharedCache(), NO_COLOR: "1", ...(server === undefined ? {} : { HOP_SERVER: server.grpc }), ...env };
    const launched = new HopProcess([...through, executable, ...args], {
      cwd: join(this.folder, cwd ?? ""),
      env: { ...Object.fromEntries(inherited), ...own },
      ...(input === undefined ? {} : { input }),
    });
    this.#processes.push(launched);
    return launched;
  }

  /** Runs a command to its end. */
  async run(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
    const ran = this.launch(args, options);
    const code = await ran.exited;
    return { code, stdout: ran.stdout, stderr: ran.stderr };
  }

  /** As `run`, but throws with the output where the command does not end with 0. Returns its standard output. */
  async expectOk(args: readonly string[], options: RunOptions = {}): Promise<string> {
    const { code, stdout, stderr } = await this.run(args, options);
    if (code !== 0) throw new Error(`hop ${args.join(" ")} ended with code ${code}\n--- stdout\n${stdout}--- stderr\n${stderr}`);
    return stdout;
  }

  /** Starts a server on ports of the system's choice and resolves when it is ready. */
  async server(options: ServerOptions = {}): Promise<Server> {
    const server = new Server(this, options);
    await server.restart();
    return server;
  }

  /** Starts a worker and resolves when it is connected. */
  async worker(server: { readonly grpc: string }, args: readonly string[], options: Omit<RunOptions, "server"> = {}): Promise<HopProcess> {
    const worker = this.launch(["worker", "--ready-line", ...args], { ...options, server });
    await worker.line(/^ready worker=\S+/m);
    return worker;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of this.#processes) each.signalGroup("SIGKILL");
    await Promise.all(this.#processes.map((each) => each.exited));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** One extracted copy of the native parts for all tests: content decides its place, so it can't be stale. */
function sharedCache(): string {
  const path = fileURLToPath(new URL("../../dist/cache/hop", import.meta.url));
  mkdirSync(path, { recursive: true });
  return path;
}

export class Server {
  /** `host:port` for clients and workers. The same after a restart. */
  grpc = "";
  /** `host:port` of /healthz and /metrics. The same after a restart. */
  http = "";
  readonly data: string;
  #process: HopProcess | undefined;
  readonly #cluster: Cluster;
  readonly #options: ServerOptions;

  constructor(cluster: Cluster, options: ServerOptions) {
    this.#cluster = cluster;
    this.#options = options;
    this.data = join(cluster.folder, options.data ?? "data");
  }

  get process(): HopProcess {
    if (this.#process === undefined) throw new Error("The server was never started");
    return this.#process;
  }

  /** Starts it, on the ports it had before if it ran already; resolves when it is ready. */
  async restart(): Promise<void> {
    this.#process = this.launch();
    const [, grpc = "", http = ""] = await this.#process.line(/^ready grpc=(\S+) http=(\S+)$/m);
    this.grpc = grpc;
    this.http = http;
  }

  /** Starts it, and resolves when it listens: it may still look for its cluster. */
  async begin(): Promise<void> {
    const [, grpc = "", http = ""] = await this.launch().line(/^(?:joining|ready) grpc=(\S+) http=(\S+)$/m);
    this.grpc = grpc;
    this.http = http;
  }

  /** Starts it without waiting; `process` is the new one. */
  launch(): HopProcess {
    const listen = ["--listen", this.grpc || "127.0.0.1:0", "--http", this.http || "127.0.0.1:0"];
    const { args = [], env } = this.#options;
    this.#process = this.#cluster.launch(
      ["server", "start", "--ready-line", "--data", this.data, ...listen, ...args],
      env === undefined ? {} : { env },
    );
    return this.#process;
  }

  /** SIGKILL; resolves when the process is gone. */
  kill(): Promise<void> {
    return this.process.kill();
  }

  /** Asks it to end in good order. */
  stop(): Promise<number> {
    return this.process.stop();
  }
}
