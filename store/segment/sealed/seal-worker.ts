/** The thread that seals: gathers the batches it is sent, and gives back the two objects. */
import { present } from "#core/base";
import { CorruptionError } from "../../corruption-error.ts";
import { RowTable } from "./row-table.ts";
import { sealTable } from "./seal.ts";
import type { SealReply, SealRequest } from "./seal-message.ts";

declare const self: Worker;

let table: RowTable | undefined;

async function answer(request: SealRequest): Promise<SealReply> {
  if (request.kind === "begin") {
    table = new RowTable(request);
    return { kind: "taken" };
  }
  const open = present(table, "a segment that was begun");
  if (request.kind === "batch") {
    open.add(request.batch);
    return { kind: "taken" };
  }
  table = undefined;
  return { kind: "sealed", sealed: await sealTable(open, request.lastIndex) };
}

function failure(error: unknown): SealReply {
  table = undefined;
  if (error instanceof CorruptionError) return { kind: "damaged", damage: error.damage };
  return { kind: "failed", message: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

self.onmessage = async ({ data }: MessageEvent<SealRequest>) => {
  const reply = await answer(data).catch(failure);
  const buffers = reply.kind === "sealed" ? [reply.sealed.segment.buffer as ArrayBuffer, reply.sealed.index.buffer as ArrayBuffer] : [];
  self.postMessage(reply, buffers);
};
