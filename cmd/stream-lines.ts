/** Chunks of a run's stream, and messages of a channel, on standard output: a line each. */
import type { ResultReply, StreamRequestInit } from "#proto";
import { type Context, InterruptedError, orInterrupted } from "./context.ts";
import { payloadBytes, type Remote, showPayload } from "./remote.ts";
import { payloadJson } from "./shapes.ts";
import { safeJson } from "./terminal.ts";

export interface Lines {
  readonly request: StreamRequestInit & { readonly fromOffset: number };
  /** Under which name programs are given each. */
  readonly field: "chunk" | "message";
  /** The command that goes on from an offset, for whoever interrupts it. */
  readonly again: (offset: number) => string;
}

/** Until the stream ends: resolves with the run's end, where it is a run's. */
export async function printLines(
  { output, interrupt }: Context,
  remote: Remote,
  { request, field, again }: Lines,
): Promise<ResultReply | undefined> {
  let next = request.fromOffset;
  const items = remote.stream(request)[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { value: item, done } = await orInterrupted(interrupt, items.next());
      if (done === true) return undefined;
      if (item.kind === "end") return item.value;
      if (item.kind !== "chunk") continue;
      const { offset, chunk } = item.value;
      next = offset + 1;
      const bytes = await payloadBytes(remote, chunk);
      if (output.isForPeople) showPayload(output, bytes);
      else if (output.format === "ids") output.line(`${offset}`);
      else output.line(safeJson({ offset, [field]: payloadJson(bytes) }));
    }
  } catch (error) {
    if (error instanceof InterruptedError) output.say(`Stopped; \`${again(next)}\` goes on here`);
    throw error;
  } finally {
    await items.return?.(undefined);
  }
}
