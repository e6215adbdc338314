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
  const end = source.consume(wanted);
  const known = new AbortController();
  const settle = () => known.abort();
  end.then(settle, settle);
  const stirred = AbortSignal.any([source.gone, known.signal]);
  let at = Math.max(fromOffset, wanted === newest ? firstSeq : 0);
  for (;;) {
    // What is there once the end is known is all that comes.
    const isEndKnown = known.signal.aborted;
    const { size, expiredEnd } = await source.state();
    at = Math.max(at, expiredEnd);
    for await (const { event, seq } of eventsOf(source, at, size)) {
      at = seq + 1;
      const { kind, payload } = event;
      if (kind === EventKind.runStarted && fromBytes(decodeRunStarted, payload).generation > wanted)
        return yield { kind: "end", value: await end };
      if (kind !== EventKind.chunkYielded) continue;
      const { chunk, refused } = fromBytes(decodeChunkYielded, payload);
      if (!refused) yield { kind: "chunk", value: { offset: seq, chunk } };
    }
    if (isEndKnown) return yield { kind: "end", value: await end };
    await source.changed(asSeq(at), stirred);
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
