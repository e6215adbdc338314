/**
 * The shop's services as one flaky HTTP server: slow, answering 503 now and then, sometimes doing
 * the work and losing the answer. It remembers idempotency keys, as a payment provider does.
 */
export interface Ledger {
  /** Answers given for each idempotency key: the effects that really happened. */
  readonly effects: Map<string, unknown>;
  /** Requests that repeated a key. */
  repeats: number;
  requests: number;
  refusals: number;
}

const refusedShare = 0.12;
const lostAnswerShare = 0.04;

/** Serves on a free port of the loopback interface. `random` in [0, 1) decides what goes wrong. */
export function serveShop(random: () => number) {
  const ledger: Ledger = { effects: new Map(), repeats: 0, requests: 0, refusals: 0 };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      ledger.requests++;
      const key = request.headers.get("idempotency-key") ?? "";
      const body = (await request.json()) as Record<string, unknown>;
      await Bun.sleep(2 + random() * 8);
      if (random() < refusedShare) {
        ledger.refusals++;
        return new Response("try again", { status: 503 });
      }
      const path = new URL(request.url).pathname.slice(1);
      if (path === "charge" && body.card === "tok_declined") return new Response("the bank declined the card", { status: 402 });
      if (ledger.effects.has(key)) ledger.repeats++;
      else ledger.effects.set(key, effectOf(path, String(body.order)));
      if (random() < lostAnswerShare) return new Response("the answer was lost", { status: 502 });
      return Response.json(ledger.effects.get(key));
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, ledger, stop: () => server.stop(true) };
}

function effectOf(path: string, order: string): unknown {
  if (path === "reserve") return { reserved: 1 };
  if (path === "charge") return { charge: `ch_${order}` };
  if (path === "ship") return { tracking: `1Z${order.replace("A-", "")}` };
  return path === "release" ? { released: true } : { sent: true };
}
