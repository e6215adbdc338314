/** The second port: metrics, liveness and readiness for machines that ask over HTTP. */
import type { Metrics } from "./metrics.ts";

export interface HttpOptions {
  readonly hostname: string;
  /** 0 = any free port. */
  readonly port: number;
  readonly metrics: Metrics;
  /** The log takes writes: otherwise a restart is the cure. */
  readonly isAlive: () => boolean;
  /** Why the node takes no requests now; undefined = it does. */
  readonly whyNotReady: () => string | undefined;
}

export interface HttpServer {
  /** host:port */
  readonly address: string;
  close(): Promise<void>;
}

/** Throws when the port is taken. */
export function serveHttp(options: HttpOptions): HttpServer {
  const { hostname, port, metrics, isAlive, whyNotReady } = options;
  const server = Bun.serve({
    hostname,
    port,
    fetch: async (request): Promise<Response> => {
      if (request.method !== "GET" && request.method !== "HEAD") return text("Only GET is answered here\n", 405);
      switch (new URL(request.url).pathname) {
        case "/metrics":
          return new Response(await metrics.page(), { headers: { "content-type": metrics.contentType } });
        case "/healthz":
          return isAlive() ? text("ok\n", 200) : text("the node can't go on\n", 503);
        case "/readyz": {
          const reason = whyNotReady();
          return reason === undefined ? text("ok\n", 200) : text(`${reason}\n`, 503);
        }
        default:
          return text("Here are /metrics, /healthz and /readyz\n", 404);
      }
    },
  });
  return { address: `${hostname}:${server.port}`, close: () => server.stop(true) };
}

function text(body: string, status: number): Response {
  return new Response(body, { status, headers: { "content-type": "text/plain; charset=utf-8" } });
}
