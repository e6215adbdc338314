/** A run's stream: what it hands out before its end. */
import { engine } from "./engine.ts";

/**
 * Yields a chunk to whoever consumes the run's stream (`hop stream`, `run.stream()` in a client), and waits until it is in
 * the run's history: however often the run is replayed, and whoever comes back to the stream, there is one such chunk,
 * handed out once it is durable. Those who come later find it too. `chunk` travels as JSON.
 *
 * Rejects with `StreamDisconnectedError` once those who consumed the stream have left it and nobody came back for ten
 * seconds, and does so until somebody does; a stream that nobody has consumed yet takes chunks. Rejects with
 * `CancelledError` when the run is cancelled meanwhile.
 *
 * ```ts
 * for (const token of answer.tokens) {
 *   try {
 *     await yieldChunk(token);
 *   } catch (error) {
 *     if (!(error instanceof StreamDisconnectedError)) throw error;
 *     return await activity("store_answer", answer.id);
 *   }
 * }
 * ```
 */
export function yieldChunk(chunk: unknown): Promise<void> {
  return engine("yieldChunk()").yieldChunk(chunk);
}

/** The name that it has in the other languages. */
export const yield_chunk: typeof yieldChunk = yieldChunk;
