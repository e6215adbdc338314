/**
 * Marks: lines of JSON that user code in a worker sends to the benchmark over a local socket, with
 * the time at which they were made. They travel beside the product, so what it delays is seen.
 */
import { connect } from "node:net";
import { now } from "./clock.ts";

export interface Mark {
  /** What happened. */
  readonly k: string;
  /** When, on the shared clock. */
  readonly t: number;
  /** To what. */
  readonly id?: string;
}

/** Name of the environment variable that holds the socket's path. */
export const marksVariable = "HOPSKIP_BENCH_MARKS";

/** Parses lines as they come in pieces; what is not yet a line waits for its rest. */
export class LineReader {
  #rest = "";

  lines(text: string): string[] {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines;
  }
}

/** The benchmark's side. */
export class Marks {
  readonly path: string;
  readonly #seen = new Map<string, Mark[]>();
  readonly #waiting = new Map<string, (mark: Mark) => void>();
  readonly #listener: { stop(closeOpen?: boolean): void };

  constructor(path: string) {
    this.path = path;
    const take = (line: string) => this.take(JSON.parse(line) as Mark);
    this.#listener = Bun.listen<{ reader: LineReader; decoder: TextDecoder }>({
      unix: path,
      socket: {
        open(socket) {
          socket.data = { reader: new LineReader(), decoder: new TextDecoder() };
        },
        data(socket, bytes) {
          for (const line of socket.data.reader.lines(socket.data.decoder.decode(bytes, { stream: true }))) take(line);
        },
      },
    });
  }

  take(mark: Mark): void {
    const same = this.#seen.get(mark.k);
    if (same === undefined) this.#seen.set(mark.k, [mark]);
    else same.push(mark);
    const waiting = this.#waiting.get(mark.k);
    this.#waiting.delete(mark.k);
    waiting?.(mark);
  }

  /** All marks of a kind so far, in the order of their arrival. */
  all(k: string): readonly Mark[] {
    return this.#seen.get(k) ?? [];
  }

  /** The next mark of a kind. Rejects when none came in time. */
  next(k: string, withinMs = 60_000): Promise<Mark> {
    if (this.#waiting.has(k)) throw new Error(`Cannot wait for mark ${k} twice at a time`);
    const { promise, resolve, reject } = Promise.withResolvers<Mark>();
    const timer = setTimeout(() => {
      this.#waiting.delete(k);
      reject(new Error(`Mark ${k} did not come within ${withinMs} ms`));
    }, withinMs);
    this.#waiting.set(k, (mark) => {
      clearTimeout(timer);
      resolve(mark);
    });
    return promise;
  }

  clear(): void {
    this.#seen.clear();
  }

  close(): void {
    this.#listener.stop(true);
  }
}

let send: ((line: string) => void) | undefined;

/** The worker's side: notes that `k` happens now. The first line of an activity. */
export function mark(k: string, id?: string): void {
  const t = now();
  send ??= openSender();
  send(`${JSON.stringify(id === undefined ? { k, t } : { k, t, id })}\n`);
}

function openSender(): (line: string) => void {
  const path = process.env[marksVariable];
  if (path === undefined) throw new Error(`Cannot send marks: ${marksVariable} is not set`);
  const socket = connect(path);
  // The benchmark is gone, and with it whoever wanted to know.
  socket.on("error", () => {});
  return (line) => void socket.write(line);
}
