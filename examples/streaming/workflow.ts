/** A stream of chunks, and what becomes of the rest when nobody takes them any more. */
import { activity, durable, encode, StreamDisconnectedError, yieldChunk } from "@hopskip/runtime";

export interface Answer {
  readonly tokens: readonly string[];
}

export const streamProcessing = durable(async ({ tokens }: Answer) => {
  for (const token of tokens) {
    try {
      await yieldChunk(token);
    } catch (error) {
      if (!(error instanceof StreamDisconnectedError)) throw error;
      await activity("reroute_store", encode("disconnected"));
      return "rerouted";
    }
    await activity("think", token);
  }
  return "done";
});
