/**
 * Streams of runs, as their consumers are given them: read from history, where every chunk is, at each
 * consumer's own pace. So one that is slow holds up nobody, and nothing is kept for it.
 */
import { asSeq, HopError, type Seq } from "#core/base";
import {
  type DescribeReply,
  decodeChunkYielded,
  decodeEvent,
  decodeRunStarted,
  EventKind,
  fromBytes,
  type ResultReplyInit,
  RunStatus,
  type StreamItemInit,
  type StreamRequest,
} from "#proto";

/** One run, seen from the node that a consumer has called. */
export interface StreamSource {
  state(): Promise<DescribeReply>;
  history(fromSeq: Seq): AsyncIterable<Uint8Array[]>;
  changed(seq: Seq, signal: AbortSignal): Promise<void>;
  /** Is a consumer of that generation's stream until this resolves with how it ended, rejects, or `gone` aborts. */
  consume(generation: number): Promise<ResultReplyInit>;
  /** The consumer has left. */
  readonly gone: AbortSignal;
}

/** Chunks from the offset on, as they come, and the run's end. Fails with `HopError`. */
export async function* consumeStream(source: StreamSource, { fromOffset, generation }: StreamRequest): AsyncIterable<StreamItemInit> {
  const { summary, firstSeq } = await source.state();
  if (summary?.status === RunStatus.queued)
    throw new HopError("RUN_QUEUED", `Cannot consume the stream of ${summary.run}: it waits in its queue, and has no run yet`);
  const newest = summary?.generation ?? 0;
  const wanted = generation === 0 ? newest : generation;
  const end = new End(source.consume(wanted));
  let at = Math.max(fromOffset, wanted === newest ? firstSeq : 0);
  for (;;) {
    // What is there once the end is known is all that comes.
    const { isKnown } = end;
    const { size, expiredEnd } = await source.state();
    at = Math.max(at, expiredEnd);
    for await (const { event, seq } of eventsOf(source, at, size)) {
      at = seq + 1;
      const { kind, payload } = event;
      if (kind === EventKind.runStarted && fromBytes(decodeRunStarted, payload).generation > wanted)
        return yield { kind: "end", value: await end.reply };
      if (kind !== EventKind.chunkYielded) continue;
      const { chunk, refused } = fromBytes(decodeChunkYielded, payload);
      if (!refused) yield { kind: "chunk", value: { offset: seq, chunk } };
    }
    if (isKnown) return yield { kind: "end", value: await end.reply };
    await source.changed(asSeq(at), AbortSignal.any([source.gone, end.signal]));
    if (source.gone.aborted) return;
  }
}

/** Events [from, size). */
async function* eventsOf(source: StreamSource, from: number, size: number) {
  if (from >= size) return;
  let seq = from;
  for await (const chunk of source.history(asSeq(from))) {
    for (const bytes of chunk) {
      if (seq >= size) return;
      yield { event: fromBytes(decodeEvent, bytes), seq: seq++ };
    }
  }
}

/** How the run ended, or why that can't be known. */
class End {
  readonly reply: Promise<ResultReplyInit>;
  isKnown = false;
  private readonly known = new AbortController();

  constructor(reply: Promise<ResultReplyInit>) {
    this.reply = reply;
    const settle = () => {
      this.isKnown = true;
      this.known.abort();
    };
    reply.then(settle, settle);
  }

  /** Aborts when it is known. */
  get signal(): AbortSignal {
    return this.known.signal;
  }
}
