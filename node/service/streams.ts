/**
 * Streams of runs, as their consumers are given them: read from history, where every chunk is, at each
 * consumer's own pace. So one that is slow holds up nobody, and nothing is kept for it.
 */
import { asSeq, HopError, type Seq } from "#core/base";
import {
  type DescribeReply,
  decodeChunkYielded,
  decodeEvent,
  decodeMessagesAppended,
  decodeRunStarted,
  EventKind,
  fromBytes,
  type ResultReplyInit,
  RunStatus,
  type StreamItemInit,
  type StreamRequest,
} from "#proto";

/** A history, seen from the node that a consumer has called. */
export interface HistorySource {
  state(): Promise<DescribeReply>;
  history(fromSeq: Seq): AsyncIterable<Uint8Array[]>;
  changed(seq: Seq, signal: AbortSignal): Promise<void>;
  /** The consumer has left. */
  readonly gone: AbortSignal;
}

/** One run's. */
export interface StreamSource extends HistorySource {
  /** Is a consumer of that generation's stream until this resolves with how it ended, rejects, or `gone` aborts. */
  consume(generation: number): Promise<ResultReplyInit>;
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

/** Messages of a channel from the offset on, as they come: until the reader leaves, or behind what is there. */
export async function* readMessages(source: HistorySource, { fromOffset, untilNow }: StreamRequest): AsyncIterable<StreamItemInit> {
  let at = -1;
  for (;;) {
    const { size, expiredEnd, channel } = await source.state();
    // Who wants only what comes need not look for it in what has been.
    if (at < 0) at = fromOffset >= (channel?.nextOffset ?? 0) ? size : 0;
    at = Math.max(at, expiredEnd);
    for await (const { event, seq } of eventsOf(source, at, size)) {
      at = seq + 1;
      if (event.kind !== EventKind.messagesAppended) continue;
      const { offset, message } = fromBytes(decodeMessagesAppended, event.payload);
      for (const [i, chunk] of message.entries())
        if (offset + i >= fromOffset) yield { kind: "chunk", value: { offset: offset + i, chunk } };
    }
    if (untilNow) return;
    await source.changed(asSeq(at), source.gone);
    if (source.gone.aborted) return;
  }
}

/** Events [from, size). */
async function* eventsOf(source: HistorySource, from: number, size: number) {
  if (from >= size) return;
  let seq = from;
  for await (const chunk of source.history(asSeq(from))) {
    for (const bytes of chunk) {
      if (seq >= size) return;
      yield { event: fromBytes(decodeEvent, bytes), seq: seq++ };
    }
  }
}
