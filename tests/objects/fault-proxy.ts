/**
 * A real HTTP proxy in front of an S3 server that does one thing wrong at a time. It speaks raw
 * TCP to its client, so that it can end an answer anywhere; signatures stay valid, since requests
 * are handed on as they came.
 */
import { createServer, type Server, type Socket } from "node:net";
import { every } from "../until.ts";

export interface ProxiedRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly isList: boolean;
}

export type ProxyFault =
  /** An S3 error in place of the server's answer; nothing is carried out. */
  | { readonly kind: "status"; readonly status: number; readonly code: string; readonly message?: string }
  /** Any answer in place of the server's; nothing is carried out. */
  | { readonly kind: "answer"; readonly status: number; readonly body: string }
  /** Handed on after so long, if the client still waits. */
  | { readonly kind: "slow"; readonly ms: number }
  /** Carried out; the connection ends when so many bytes of the body were sent. */
  | { readonly kind: "cut"; readonly bytes: number }
  /** Carried out; a bit of the body is another one. */
  | { readonly kind: "wrong-body" }
  /** Carried out; the connection ends without an answer. */
  | { readonly kind: "lost-answer" }
  /** Carried out; the connection stays open without an answer. */
  | { readonly kind: "silent" }
  /** Not carried out; the connection ends without an answer. */
  | { readonly kind: "lost-request" }
  /** The answer that this very request had before. */
  | { readonly kind: "stale" };

interface Answer {
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
}

interface Parsed extends ProxiedRequest {
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
}

export class FaultProxy implements AsyncDisposable {
  /** Which fault strikes a request, if any; it waits for the answer. */
  plan: (request: ProxiedRequest) => ProxyFault | undefined | Promise<ProxyFault | undefined> = () => undefined;
  /** All requests that came, as `METHOD path`. */
  readonly seen: string[] = [];
  private readonly upstream: string;
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  private readonly answered = new Map<string, Answer>();

  private constructor(upstream: string) {
    this.upstream = upstream;
    this.server = createServer((socket) => this.serve(socket));
  }

  static async start(upstream: string): Promise<FaultProxy> {
    const proxy = new FaultProxy(upstream);
    await new Promise<void>((resolve) => proxy.server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.server.address() as { port: number }).port}`;
  }

  /** Strikes the next requests, one fault each. */
  strike(...faults: readonly (ProxyFault | undefined)[]): void {
    const left = [...faults];
    this.plan = () => left.shift();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private serve(socket: Socket): void {
    this.sockets.add(socket);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    let buffered = Buffer.alloc(0);
    let working = Promise.resolve();
    socket.on("data", (chunk: Buffer) => {
      buffered = Buffer.concat([buffered, chunk]);
      for (let next = parsed(buffered); next !== undefined; next = parsed(buffered)) {
        const { request, length } = next;
        buffered = buffered.subarray(length);
        working = working.then(() => this.handle(socket, request)).catch(() => void socket.destroy());
      }
    });
  }

  private async handle(socket: Socket, request: Parsed): Promise<void> {
    if (socket.destroyed) return;
    this.seen.push(`${request.method} ${request.path}`);
    const fault = await this.plan(request);
    if (fault === undefined) return send(socket, await this.forward(request));
    switch (fault.kind) {
      case "status":
        return send(socket, s3Error(fault));
      case "answer":
        return send(socket, { status: fault.status, headers: [["content-type", "text/html"]], body: Buffer.from(fault.body) });
      case "lost-request":
        return void socket.destroy();
      case "slow":
        await every(fault.ms);
        if (socket.destroyed) return;
        return send(socket, await this.forward(request));
      case "stale":
        return send(socket, this.answered.get(request.path) ?? (await this.forward(request)));
      default:
        return this.spoil(socket, await this.forward(request), fault);
    }
  }

  private spoil(socket: Socket, answer: Answer, fault: ProxyFault): void {
    switch (fault.kind) {
      case "cut":
        socket.write(headOf(answer, answer.body.length));
        socket.end(answer.body.subarray(0, fault.bytes));
        return;
      case "wrong-body": {
        const body = Buffer.from(answer.body);
        if (body[0] !== undefined) body[0] ^= 1;
        return send(socket, { ...answer, body });
      }
      case "lost-answer":
        return void socket.destroy();
      default:
        return;
    }
  }

  private async forward({ method, path, headers, body, isList }: Parsed): Promise<Answer> {
    // The host that was signed is the proxy's.
    const response = await fetch(this.upstream + path, {
      method,
      headers: headers.filter(([name]) => name !== "connection") as [string, string][],
      ...(body.length > 0 && { body: new Uint8Array(body) }),
      redirect: "manual",
      decompress: false,
    });
    const kept = [...response.headers].filter(
      ([name]) => name !== "connection" && name !== "transfer-encoding" && name !== "content-length",
    );
    const length = response.headers.get("content-length");
    if (method === "HEAD" && length !== null) kept.push(["content-length", length]);
    const answer = { status: response.status, headers: kept, body: Buffer.from(await response.arrayBuffer()) };
    if (isList && !this.answered.has(path)) this.answered.set(path, answer);
    return answer;
  }
}

/** The first whole request of what has come, and how many bytes it takes. */
function parsed(bytes: Buffer): { readonly request: Parsed; readonly length: number } | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const [line = "", ...rest] = bytes.subarray(0, headEnd).toString("latin1").split("\r\n");
  const [method = "", path = ""] = line.split(" ");
  const headers = rest.map((each) => {
    const at = each.indexOf(":");
    return [each.slice(0, at).toLowerCase(), each.slice(at + 1).trim()] as const;
  });
  if (headers.some(([name]) => name === "transfer-encoding")) throw new Error("The proxy takes bodies of a known length only");
  const length = headEnd + 4 + Number(headers.find(([name]) => name === "content-length")?.[1] ?? 0);
  if (bytes.length < length) return undefined;
  const isList = method === "GET" && path.includes("list-type=2");
  return { request: { method, path, isList, headers, body: Buffer.from(bytes.subarray(headEnd + 4, length)) }, length };
}

function headOf({ status, headers }: Answer, length: number): string {
  const isSaid = headers.some(([name]) => name === "content-length");
  const all = isSaid ? headers : [...headers, ["content-length", String(length)]];
  return `HTTP/1.1 ${status} X\r\n${all.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
}

function send(socket: Socket, answer: Answer): void {
  socket.write(Buffer.concat([Buffer.from(headOf(answer, answer.body.length), "latin1"), answer.body]));
}

function s3Error({ status, code, message = code }: { status: number; code: string; message?: string }): Answer {
  const body = `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>${message}</Message></Error>`;
  return { status, headers: [["content-type", "application/xml"]], body: Buffer.from(body) };
}
