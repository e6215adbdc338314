/** The item codecs of the two hot streams, each seen from both sides. */
import {
  type ClientItem,
  type ClientItemInit,
  decodeClientItem,
  decodeReplyItem,
  decodeServerItem,
  decodeWorkerItem,
  encodeClientItem,
  encodeReplyItem,
  encodeServerItem,
  encodeWorkerItem,
  type ReplyItem,
  type ReplyItemInit,
  type ServerItem,
  type ServerItemInit,
  type WorkerItem,
  type WorkerItemInit,
} from "../gen/codec.ts";
import type { ItemCodec } from "./connection.ts";

export const dispatchPath = "/hopskip.v1.Dispatch/Connect";
export const sessionPath = "/hopskip.v1.WorkflowClient/Session";

/** Dispatch.Connect as the worker sees it. */
export const workerCodec: ItemCodec<WorkerItemInit, ServerItem> = { encodeOut: encodeWorkerItem, decodeIn: decodeServerItem };
/** Dispatch.Connect as the server sees it. */
export const dispatchCodec: ItemCodec<ServerItemInit, WorkerItem> = { encodeOut: encodeServerItem, decodeIn: decodeWorkerItem };
/** WorkflowClient.Session as the client sees it. */
export const clientCodec: ItemCodec<ClientItemInit, ReplyItem> = { encodeOut: encodeClientItem, decodeIn: decodeReplyItem };
/** WorkflowClient.Session as the server sees it. */
export const sessionCodec: ItemCodec<ReplyItemInit, ClientItem> = { encodeOut: encodeReplyItem, decodeIn: decodeClientItem };
