/** The thread that seals: gathers the batches it is sent, and gives back the two objects. */
import { present } from "#core/base";
import { CorruptionError } from "../../corruption-error.ts";
import { RowTable } from "./row-table.ts";
import { sealTable } from "./seal.ts";
import type { SealReply, SealRequest } from "./seal-message.ts";
import { packObject } from "./seal-work.ts";

declare const self: Worker;

let table: RowTable | undefined;

async function answer(request: SealRequest): Promise<SealReply> {
  if (request.kind === "pack") return { kind: "packed", packed: packObject(request.plain) };
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

function buffersOf(reply: SealReply): ArrayBufferLike[] {
  if (reply.kind === "sealed") return [reply.sealed.segment.buffer, reply.sealed.index.buffer];
  return reply.kind === "packed" ? [reply.packed.bytes.buffer] : [];
}

self.onmessage = async ({ data }: MessageEvent<SealRequest>) => {
  const reply = await answer(data).catch(failure);
  self.postMessage(reply, buffersOf(reply) as ArrayBuffer[]);
};
