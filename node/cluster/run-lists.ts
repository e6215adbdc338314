/**
 * Lists of runs over the whole cluster: each shard's leader answers for its keys, and the pages are
 * merged in the order of lists.
 *
 * Every key is asked for exactly once, whoever leads it while the list is made. A part that does
 * not answer is an error that names it, never a shorter list.
 */
import type { KeyRange, NodeId } from "#core/base";
import { HopError, rangeText } from "#core/base";
import {
  decodeForwardedList,
  decodeListReply,
  encodeForwardedList,
  encodeListReply,
  fromBytes,
  type ListReply,
  type ListRequest,
  type RunSummary,
  toBytes,
} from "#proto";
import { pageTokenOf } from "#store";
import type { PeerNet } from "../peer/peer-net.ts";
import type { RunIndex } from "../service/client-service.ts";
import { asHopError } from "../service/status.ts";
import type { Timing } from "../timing.ts";
import type { VisibilityPump } from "../visibility-pump.ts";
import type { LocalShards } from "./local-shards.ts";
import type { Router } from "./router.ts";

export interface RunListsParts {
  readonly self: NodeId;
  readonly net: PeerNet;
  readonly router: Router;
  readonly shards: Pick<LocalShards, "led" | "ledShards">;
  readonly pump: Pick<VisibilityPump, "list">;
  readonly timing: Timing;
  /** How long parts that have no leader are waited for. */
  readonly budgetMs?: number;
}

const listCall = "runs.list";
const budgetMsDefault = 10_000;
const retryMs = 50;
const callMsMax = 10_000;

interface Part {
  readonly runs: readonly RunSummary[];
  readonly isMore: boolean;
}

export class RunLists implements RunIndex {
  private readonly parts: RunListsParts;

  constructor(parts: RunListsParts) {
    this.parts = parts;
    parts.net.serve(listCall, async (_, body) => {
      const { request, span } = fromBytes(decodeForwardedList, body);
      if (request === undefined) throw new HopError("BAD_REQUEST", "Cannot list runs for another node: it asks for nothing");
      return toBytes(encodeListReply, await this.own(request, span));
    });
  }

  /** One page, as of everything acknowledged when it was asked. Rejects with `HopError` that names the keys that nobody answers for. */
  async list(request: ListRequest): Promise<ListReply> {
    const { timing, budgetMs = budgetMsDefault } = this.parts;
    const untilMs = timing.monotonicMs() + budgetMs;
    const found: Part[] = [];
    for (let spans: readonly KeyRange[] | undefined; ; ) {
      const missing = await this.ask(request, spans, found);
      if (missing.length === 0) return merged(request, found);
      const why = missing[0] as Missing;
      if (!isPassing(why.error) || this.parts.router.isStopping || timing.monotonicMs() + retryMs >= untilMs) throw incomplete(why);
      spans = missing.map((each) => each.span);
      await new Promise<void>((resolve) => void timing.after(retryMs, resolve));
    }
  }

  /** Asks the leaders of `spans` (all keys where undefined), adds what they answer to `found`, and returns what is missing. */
  private async ask(request: ListRequest, spans: readonly KeyRange[] | undefined, found: Part[]): Promise<Missing[]> {
    const byNode = new Map<NodeId, KeyRange[]>();
    const missing: Missing[] = [];
    for (const place of this.parts.router.places()) {
      const node = this.parts.router.leaderOf(place);
      for (const span of clipped(place, spans)) {
        if (node === undefined) missing.push({ span, node, error: new HopError("NOT_LEADER", `shard ${place.shard} has no leader`) });
        else byNode.set(node, joined(byNode.get(node) ?? [], span));
      }
    }
    const asked = [...byNode].map(async ([node, own]) => {
      try {
        const reply = node === this.parts.self ? await this.own(request, own) : await this.remote(node, request, own);
        found.push({ runs: reply.run, isMore: reply.nextPageToken !== "" });
      } catch (error) {
        for (const span of own) missing.push({ span, node, error: asHopError(error) });
      }
    });
    await Promise.all(asked);
    return missing;
  }

  private async remote(node: NodeId, request: ListRequest, span: readonly KeyRange[]): Promise<ListReply> {
    const body = toBytes(encodeForwardedList, { request, span: [...span] });
    return fromBytes(decodeListReply, await this.parts.net.call(node, listCall, body, { timeoutMs: callMsMax }));
  }

  /** From this node's index. Rejects with NOT_LEADER where one of the keys is led elsewhere, before or after. */
  private async own(request: ListRequest, spans: readonly KeyRange[]): Promise<ListReply> {
    this.requireLed(spans);
    const reply = await this.parts.pump.list(request, spans);
    this.requireLed(spans);
    return reply;
  }

  private requireLed(spans: readonly KeyRange[]): void {
    const { shards, self } = this.parts;
    const ports = shards.ledShards().map((shard) => shards.led(shard));
    const led = ports.flatMap((port) => (port?.isCurrent() === true ? port.range : []));
    led.sort((a, b) => a.first - b.first);
    for (const { first, last } of spans) {
      let next = first;
      for (const range of led) if (range.first <= next && range.last >= next) next = range.last + 1;
      if (next <= last)
        throw new HopError("NOT_LEADER", `node ${self} does not lead the keys ${rangeText({ first: next, last })}`, { retryAfterMs: 20 });
    }
  }
}

interface Missing {
  readonly span: KeyRange;
  readonly node: NodeId | undefined;
  readonly error: HopError;
}

const isPassing = ({ reason }: HopError) =>
  reason === "NOT_LEADER" || reason === "STALE_EPOCH" || reason === "STORE_UNAVAILABLE" || reason === "BUDGET_EXPIRED";

function incomplete({ span, node, error }: Missing): HopError {
  if (!isPassing(error)) return error;
  const who = node === undefined ? "nobody answers" : `node ${node} does not answer`;
  return new HopError("STORE_UNAVAILABLE", `Cannot list runs: ${who} for the keys ${rangeText(span)} (${error.message}); try again`, {
    retryAfterMs: 500,
    cause: error,
  });
}

/** Neighbours as one: a node that leads everything is asked for one span. Spans come in the order of keys. */
function joined(spans: KeyRange[], next: KeyRange): KeyRange[] {
  const last = spans.at(-1);
  if (last !== undefined && last.last + 1 === next.first) spans[spans.length - 1] = { first: last.first, last: next.last };
  else spans.push(next);
  return spans;
}

/** The parts of `spans` that lie in `range`. */
function clipped({ first, last }: KeyRange, spans: readonly KeyRange[] | undefined): KeyRange[] {
  if (spans === undefined) return [{ first, last }];
  const parts = spans.map((span) => ({ first: Math.max(span.first, first), last: Math.min(span.last, last) }));
  return parts.filter((part) => part.first <= part.last);
}

/** Newest first, then by run and generation: the order of every part, and of page tokens. */
function merged(request: ListRequest, parts: readonly Part[]): ListReply {
  const all = parts.flatMap((part) => part.runs).sort(byPlace);
  const run = request.limit === 0 ? all : all.slice(0, request.limit);
  const isMore = run.length < all.length || parts.some((part) => part.isMore);
  const last = run.at(-1);
  return { run, nextPageToken: isMore && last !== undefined ? pageTokenOf(last) : "" };
}

function byPlace(a: RunSummary, b: RunSummary): number {
  if (a.startedMs !== b.startedMs) return b.startedMs - a.startedMs;
  // As SQLite compares text: by its UTF-8 bytes.
  if (a.run !== b.run) return Buffer.compare(Buffer.from(a.run), Buffer.from(b.run));
  return a.generation - b.generation;
}
