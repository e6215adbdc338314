/**
 * The Node process that holds V8, as the worker sees it: a unix socket with messages that leave
 * together at the end of a tick, and a death that is noticed.
 *
 * It never outlives the worker: the kernel of the operating system kills it with its parent. Its
 * socket and marker file are unlinked as soon as both sides hold them, so nothing stays on disk.
 */
import { closeSync, mkdtempSync, openSync, readdirSync, readSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Socket } from "bun";
import type { V8Assets } from "./assets.ts";
import { channel, Inbox, Outbox } from "./frames.ts";

/** The realm must not offer what a blob can't hold, and a blob must not depend on chance. */
const blobFlags = [
  "--no-node-snapshot",
  "--random-seed=42",
  "--no-js-explicit-resource-management",
  "--no-validate-asm",
  "--no-js-promise-try",
  "--no-js-atomics-pause",
  "--no-js-regexp-escape",
  "--no-js-float16array",
  "--no-js-error-iserror",
  "--enable-sharedarraybuffer-per-context",
];
/** With it, V8 13.6 drops the check by which an endless loop that holds a short one can be ended. */
const limitFlags = ["--no-turboshaft-loop-unrolling"];
/** Nothing of the worker's environment reaches the child, which runs strangers' code. */
const environment = { TZ: "UTC", LC_ALL: "en_US.UTF-8" };
const startTimeoutMs = 20_000;
const closeTimeoutMs = 2_000;
/** Above this the outbox leaves before the tick ends. */
const outboxBytesSoft = 8 * 1024 * 1024;
const stderrBytesKept = 4096;

export interface CommandAnswer {
  readonly error?: string;
  readonly dependencies?: string;
}

export interface ChildEvents {
  /** Bodies of frames messages. */
  answers(body: Buffer): void;
  /** The process is gone. */
  exit(death: Death): void;
}

export interface Death {
  /** Key of the run that the process was executing, 0 = none. */
  readonly running: number;
  readonly message: string;
  /** What that run did, where the process ended for it. */
  readonly excess: "memory" | "stuck" | undefined;
}

/** The addon's exit codes: its watchdog's for a guest that does not stop, and its handler's for V8 without memory. */
const excessByCode: Readonly<Record<number, Death["excess"]>> = { 70: "stuck", 71: "memory" };

/** Signals that commands meet when the process dies. */
export class ChildDiedError extends Error {
  override name = "ChildDiedError";
}

const folderPrefix = "hop-v8-";

/** A worker that was killed while its V8 process started left a folder: whoever starts next removes it. */
function sweep(): void {
  for (const name of readdirSync(tmpdir())) {
    const pid = name.startsWith(folderPrefix) ? Number(name.slice(folderPrefix.length).split("-")[0]) : Number.NaN;
    if (!Number.isInteger(pid) || pid <= 0 || isAlive(pid)) continue;
    rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as { code?: unknown }).code !== "ESRCH";
  }
}

export class ChildProcess {
  readonly #process: Bun.Subprocess<"ignore", "ignore", "pipe">;
  readonly #socket: Socket;
  readonly #marker: number;
  readonly #outbox = new Outbox();
  readonly #inbox = new Inbox();
  readonly #commands: { resolve(answer: CommandAnswer): void; reject(error: Error): void }[] = [];
  #unsent: Buffer[] = [];
  #flushing = false;
  #events: ChildEvents;
  #stderr = "";
  #gone = false;

  private constructor(parts: { process: ChildProcess["process"]; socket: Socket; marker: number; events: ChildEvents }) {
    this.#process = parts.process;
    this.#socket = parts.socket;
    this.#marker = parts.marker;
    this.#events = parts.events;
  }

  get process(): Bun.Subprocess<"ignore", "ignore", "pipe"> {
    return this.#process;
  }

  /** Starts the process and resolves once it is connected. */
  static async start(assets: V8Assets, events: ChildEvents): Promise<ChildProcess> {
    sweep();
    const folder = mkdtempSync(join(tmpdir(), `${folderPrefix}${process.pid}-`)); // mode 0700
    const socketPath = join(folder, "s");
    const markerPath = join(folder, "m");
    writeFileSync(markerPath, Buffer.alloc(4), { mode: 0o600 });
    const marker = openSync(markerPath, "r");
    const connected = Promise.withResolvers<Socket>();
    let child: ChildProcess | undefined;
    const listener = Bun.listen({
      unix: socketPath,
      socket: {
        open: (socket) => connected.resolve(socket),
        data: (_socket, chunk) => child?.receive(chunk),
        drain: () => child?.drain(),
        close: () => {},
        error: () => {},
      },
    });
    const command = [assets.node, ...blobFlags, ...limitFlags, assets.child, assets.addon, socketPath, markerPath, String(process.pid)];
    let spawned: ChildProcess["process"] | undefined;
    try {
      spawned = Bun.spawn(command, { cwd: "/", env: environment, stdin: "ignore", stdout: "ignore", stderr: "pipe" });
      const socket = await raceStart(connected.promise, spawned);
      child = new ChildProcess({ process: spawned, socket, marker, events });
      child.watch();
      return child;
    } catch (cause) {
      spawned?.kill("SIGKILL");
      closeSync(marker);
      throw new ChildDiedError(`Cannot start the V8 process ${assets.node}: ${cause instanceof Error ? cause.message : String(cause)}`, {
        cause,
      });
    } finally {
      listener.stop(false);
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** Frames to fill. They leave together with all else of this tick. */
  outbox(): Outbox {
    if (this.#outbox.length > outboxBytesSoft) this.flush();
    this.schedule();
    return this.#outbox;
  }

  /** Asks for something that is no delivery; answered in order. Rejects with `ChildDiedError`. */
  command(
    command: { readonly name: string; readonly [field: string]: string | number },
    texts: readonly string[] = [],
  ): Promise<CommandAnswer> {
    if (this.#gone) return Promise.reject(new ChildDiedError("The V8 process has ended"));
    return new Promise((resolve, reject) => {
      this.#commands.push({ resolve, reject });
      this.outbox().command(command, texts);
    });
  }

  /** Ends the process and resolves when it is gone. */
  async close(): Promise<void> {
    if (!this.#gone) {
      this.flush();
      this.#socket.end();
    }
    const late = setTimeout(() => this.#process.kill("SIGKILL"), closeTimeoutMs);
    await this.#process.exited;
    clearTimeout(late);
  }

  private watch(): void {
    void this.readStderr();
    void this.#process.exited.then((code) => this.exited(code));
  }

  private async readStderr(): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of this.#process.stderr) {
      this.#stderr = (this.#stderr + decoder.decode(chunk, { stream: true })).slice(-stderrBytesKept);
    }
  }

  private exited(code: number): void {
    this.#gone = true;
    const running = Buffer.alloc(4);
    readSync(this.#marker, running, 0, 4, 0);
    closeSync(this.#marker);
    this.#socket.terminate();
    const cause = this.#process.signalCode ?? `code ${code}`;
    const said = /(Fatal|FATAL|Error)[^\n]*/.exec(this.#stderr)?.[0];
    const message = `The V8 process ended with ${cause}${said === undefined ? "" : `: ${said}`}`;
    for (const command of this.#commands.splice(0)) command.reject(new ChildDiedError(message));
    this.#events.exit({ running: running.readUInt32LE(0), message, excess: excessByCode[code] });
  }

  private receive(chunk: Uint8Array): void {
    this.#inbox.push(chunk, (from, body) => {
      if (from === channel.frames) this.#events.answers(body);
      else this.#commands.shift()?.resolve(JSON.parse(body.toString("utf8")) as CommandAnswer);
    });
  }

  private schedule(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => {
      this.#flushing = false;
      this.flush();
    });
  }

  private flush(): void {
    const bytes = this.#outbox.take();
    if (bytes.length === 0 || this.#gone) return;
    const written = this.#unsent.length > 0 ? 0 : Math.max(0, this.#socket.write(bytes));
    if (written < bytes.length) this.#unsent.push(Buffer.from(bytes.subarray(written)));
  }

  private drain(): void {
    while (this.#unsent.length > 0) {
      const next = this.#unsent[0]!;
      const written = Math.max(0, this.#socket.write(next));
      if (written < next.length) {
        this.#unsent[0] = next.subarray(written);
        return;
      }
      this.#unsent.shift();
    }
  }
}

/** The socket of a process that connects, or an error when it ends or takes too long. */
async function raceStart(connected: Promise<Socket>, child: ChildProcess["process"]): Promise<Socket> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`it did not connect within ${startTimeoutMs} ms`)), startTimeoutMs);
  });
  const ended = child.exited.then(async (code) => {
    throw new Error(
      `it ended with ${child.signalCode ?? `code ${code}`}: ${(await new Response(child.stderr).text()).trim().slice(-stderrBytesKept)}`,
    );
  });
  ended.catch(() => {}); // it also ends long after it connected
  try {
    return await Promise.race([connected, late, ended]);
  } finally {
    clearTimeout(timer);
  }
}
