/** A run's stream: the chunks that it yields, and whether anybody consumes them. */
import { EventKind, type Payload, StreamState } from "#proto";
import type { EventOf, RunEvent } from "./event.ts";
import type { Run } from "./state.ts";

/** A stream that nobody has consumed so far takes chunks: they are there for whoever comes. One that all have left takes none. */
export const decideChunk = (run: Run, { op, chunk }: { readonly op: number; readonly chunk: Payload | undefined }): RunEvent => ({
  kind: EventKind.chunkYielded,
  body: { op, chunk, refused: run.stream === StreamState.disconnected },
});

export const isConnected = (run: Run): boolean => run.stream === StreamState.connected;

export function applyToStream(run: Run, event: EventOf<"chunkYielded" | "streamConnected" | "streamDisconnected">): void {
  if (event.kind === EventKind.chunkYielded) run.nextOp = event.body.op + 1;
  else run.stream = event.kind === EventKind.streamConnected ? StreamState.connected : StreamState.disconnected;
}
