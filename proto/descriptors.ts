/**
 * Services as gRPC needs them: names and paths from the descriptors, messages through the codec.
 *
 * Kept out of `index.ts`: descriptors cost start-up time that only what speaks gRPC has to pay.
 */
import type { DescFile, DescMethod, DescService } from "@bufbuild/protobuf";
import { toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { Decode, Encode } from "./codec/messages.ts";
import { fromBytes, toBytes } from "./codec/messages.ts";
import * as codec from "./gen/codec.ts";
import { Health } from "./gen/grpc/health/v1/health_pb.js";
import { ServerReflection } from "./gen/grpc/reflection/v1/reflection_pb.js";
import { WorkflowClient } from "./gen/hopskip/v1/client_pb.js";
import { ClusterAdmin } from "./gen/hopskip/v1/cluster_pb.js";
import { Dispatch } from "./gen/hopskip/v1/dispatch_pb.js";

export {
  type HealthCheckRequest,
  HealthCheckRequestSchema,
  HealthCheckResponse_ServingStatus as ServingStatus,
  HealthCheckResponseSchema,
} from "./gen/grpc/health/v1/health_pb.js";
export {
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from "./gen/grpc/reflection/v1/reflection_pb.js";

export type Serialize<T> = (message: T) => Buffer;
export type Deserialize<T> = (bytes: Uint8Array) => T;

/** One unary or server-streaming method, in the shape of a grpc-js method definition. */
export interface Method<RequestInit, Request, ResponseInit, Response> {
  readonly path: string;
  readonly requestStream: false;
  readonly responseStream: boolean;
  readonly requestSerialize: Serialize<RequestInit>;
  /** Byte fields are views into the input. Throws `CodecError`. */
  readonly requestDeserialize: Deserialize<Request>;
  readonly responseSerialize: Serialize<ResponseInit>;
  readonly responseDeserialize: Deserialize<Response>;
}

/** The same memory as a Buffer: gRPC asks for one. */
export function bufferView(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export const pathOf = (method: DescMethod) => `/${method.parent.typeName}/${method.name}`;

function method<RequestInit, Request, ResponseInit, Response>(
  desc: DescMethod,
  encodeRequest: Encode<RequestInit>,
  decodeRequest: Decode<Request>,
  encodeResponse: Encode<ResponseInit>,
  decodeResponse: Decode<Response>,
): Method<RequestInit, Request, ResponseInit, Response> {
  return {
    path: pathOf(desc),
    requestStream: false,
    responseStream: desc.methodKind === "server_streaming",
    requestSerialize: (message) => bufferView(toBytes(encodeRequest, message)),
    requestDeserialize: (bytes) => fromBytes(decodeRequest, bytes),
    responseSerialize: (message) => bufferView(toBytes(encodeResponse, message)),
    responseDeserialize: (bytes) => fromBytes(decodeResponse, bytes),
  };
}

const m = WorkflowClient.method;
const c = codec;

/** What WorkflowClient answers call by call; its `Session` is a stream of raw frames. */
export const clientMethods = {
  consumeStream: method(m.consumeStream, c.encodeStreamRequest, c.decodeStreamRequest, c.encodeStreamItem, c.decodeStreamItem),
  changeSchedule: method(m.changeSchedule, c.encodeScheduleCommand, c.decodeScheduleCommand, c.encodeScheduleReply, c.decodeScheduleReply),
  describeSchedule: method(
    m.describeSchedule,
    c.encodeDescribeRequest,
    c.decodeDescribeRequest,
    c.encodeDescribeReply,
    c.decodeDescribeReply,
  ),
  changeChannel: method(m.changeChannel, c.encodeChannelCommand, c.decodeChannelCommand, c.encodeChannelReply, c.decodeChannelReply),
  describeChannel: method(
    m.describeChannel,
    c.encodeDescribeRequest,
    c.decodeDescribeRequest,
    c.encodeDescribeReply,
    c.decodeDescribeReply,
  ),
  listChannels: method(m.listChannels, c.encodeListRequest, c.decodeListRequest, c.encodeListReply, c.decodeListReply),
  listSchedules: method(m.listSchedules, c.encodeListRequest, c.decodeListRequest, c.encodeListReply, c.decodeListReply),
  previewSchedule: method(m.previewSchedule, c.encodePreviewRequest, c.decodePreviewRequest, c.encodePreviewReply, c.decodePreviewReply),
  startWorkflow: method(m.startWorkflow, c.encodeStartRequest, c.decodeStartRequest, c.encodeStartReply, c.decodeStartReply),
  sendChannelMessage: method(m.sendChannelMessage, c.encodeSignalRequest, c.decodeSignalRequest, c.encodeSignalReply, c.decodeSignalReply),
  callMethod: method(m.callMethod, c.encodeCallRequest, c.decodeCallRequest, c.encodeCallReply, c.decodeCallReply),
  queryWorkflow: method(m.queryWorkflow, c.encodeQueryRequest, c.decodeQueryRequest, c.encodeQueryReply, c.decodeQueryReply),
  getResult: method(m.getResult, c.encodeResultRequest, c.decodeResultRequest, c.encodeResultReply, c.decodeResultReply),
  cancelWorkflow: method(m.cancelWorkflow, c.encodeCancelRequest, c.decodeCancelRequest, c.encodeCancelReply, c.decodeCancelReply),
  terminateWorkflow: method(
    m.terminateWorkflow,
    c.encodeTerminateRequest,
    c.decodeTerminateRequest,
    c.encodeTerminateReply,
    c.decodeTerminateReply,
  ),
  resumeWorkflow: method(m.resumeWorkflow, c.encodeResumeRequest, c.decodeResumeRequest, c.encodeResumeReply, c.decodeResumeReply),
  pauseWorkflow: method(m.pauseWorkflow, c.encodePauseRequest, c.decodePauseRequest, c.encodePauseReply, c.decodePauseReply),
  unpauseWorkflow: method(m.unpauseWorkflow, c.encodeUnpauseRequest, c.decodeUnpauseRequest, c.encodeUnpauseReply, c.decodeUnpauseReply),
  replayDeadLetter: method(
    m.replayDeadLetter,
    c.encodeReplayDeadLetterRequest,
    c.decodeReplayDeadLetterRequest,
    c.encodeReplayDeadLetterReply,
    c.decodeReplayDeadLetterReply,
  ),
  dropDeadLetter: method(
    m.dropDeadLetter,
    c.encodeDropDeadLetterRequest,
    c.decodeDropDeadLetterRequest,
    c.encodeDropDeadLetterReply,
    c.decodeDropDeadLetterReply,
  ),
  listWorkflows: method(m.listWorkflows, c.encodeListRequest, c.decodeListRequest, c.encodeListReply, c.decodeListReply),
  describeWorkflow: method(
    m.describeWorkflow,
    c.encodeDescribeRequest,
    c.decodeDescribeRequest,
    c.encodeDescribeReply,
    c.decodeDescribeReply,
  ),
  getHistory: method(m.getHistory, c.encodeHistoryRequest, c.decodeHistoryRequest, c.encodeHistoryChunk, c.decodeHistoryChunk),
  deploy: method(m.deploy, c.encodeDeployRequest, c.decodeDeployRequest, c.encodeDeployReply, c.decodeDeployReply),
  routeDeployment: method(m.routeDeployment, c.encodeRouteRequest, c.decodeRouteRequest, c.encodeRouteReply, c.decodeRouteReply),
  listDeployments: method(
    m.listDeployments,
    c.encodeListDeploymentsRequest,
    c.decodeListDeploymentsRequest,
    c.encodeListDeploymentsReply,
    c.decodeListDeploymentsReply,
  ),
  getBlob: method(m.getBlob, c.encodeBlobRequest, c.decodeBlobRequest, c.encodeBlobChunk, c.decodeBlobChunk),
  listNodes: method(m.listNodes, c.encodeListNodesRequest, c.decodeListNodesRequest, c.encodeNodes, c.decodeNodes),
} as const;

const a = ClusterAdmin.method;
const progress = [c.encodeProgress, c.decodeProgress] as const;

export const clusterMethods = {
  init: method(a.init, c.encodeClusterInitRequest, c.decodeClusterInitRequest, c.encodeClusterInitReply, c.decodeClusterInitReply),
  restore: method(a.restore, c.encodeClusterRestoreRequest, c.decodeClusterRestoreRequest, ...progress),
  join: method(a.join, c.encodeClusterJoinRequest, c.decodeClusterJoinRequest, ...progress),
  leave: method(a.leave, c.encodeClusterLeaveRequest, c.decodeClusterLeaveRequest, ...progress),
  status: method(a.status, c.encodeClusterStatusRequest, c.decodeClusterStatusRequest, c.encodeClusterStatus, c.decodeClusterStatus),
  listMembers: method(
    a.listMembers,
    c.encodeListMembersRequest,
    c.decodeListMembersRequest,
    c.encodeListMembersReply,
    c.decodeListMembersReply,
  ),
  listShards: method(a.listShards, c.encodeListShardsRequest, c.decodeListShardsRequest, c.encodeListShardsReply, c.decodeListShardsReply),
  showShard: method(a.showShard, c.encodeShowShardRequest, c.decodeShowShardRequest, c.encodeShardInfo, c.decodeShardInfo),
  splitShard: method(a.splitShard, c.encodeSplitShardRequest, c.decodeSplitShardRequest, ...progress),
  mergeShard: method(a.mergeShard, c.encodeMergeShardRequest, c.decodeMergeShardRequest, ...progress),
  compactShard: method(a.compactShard, c.encodeCompactShardRequest, c.decodeCompactShardRequest, ...progress),
  moveShard: method(a.moveShard, c.encodeMoveShardRequest, c.decodeMoveShardRequest, ...progress),
  transferShard: method(a.transferShard, c.encodeTransferShardRequest, c.decodeTransferShardRequest, ...progress),
  verifyShard: method(a.verifyShard, c.encodeVerifyShardRequest, c.decodeVerifyShardRequest, c.encodeVerifyReply, c.decodeVerifyReply),
  setReplication: method(
    a.setReplication,
    c.encodeSetReplicationRequest,
    c.decodeSetReplicationRequest,
    c.encodeSetReplicationReply,
    c.decodeSetReplicationReply,
  ),
  setEntry: method(a.setEntry, c.encodeSetEntryRequest, c.decodeSetEntryRequest, c.encodeSetEntryReply, c.decodeSetEntryReply),
  getEntry: method(a.getEntry, c.encodeGetEntryRequest, c.decodeGetEntryRequest, c.encodeClusterEntry, c.decodeClusterEntry),
  listEntries: method(
    a.listEntries,
    c.encodeListEntriesRequest,
    c.decodeListEntriesRequest,
    c.encodeListEntriesReply,
    c.decodeListEntriesReply,
  ),
} as const;

/** Paths of the long-lived streams, whose frames are encoded and read by hand. */
export const sessionPath = pathOf(m.session);
export const connectPath = pathOf(Dispatch.method.connect);
export const healthPaths = { check: pathOf(Health.method.check), watch: pathOf(Health.method.watch) } as const;
export const reflectionPaths = {
  v1: pathOf(ServerReflection.method.serverReflectionInfo),
  v1alpha: pathOf(ServerReflection.method.serverReflectionInfo).replace(".v1.", ".v1alpha."),
} as const;

/** Every service a node serves, in the order that reflection lists them. */
export const services: readonly DescService[] = [WorkflowClient, Dispatch, ClusterAdmin, Health, ServerReflection];

/** One file of the schema with its encoded `FileDescriptorProto`. */
export interface SchemaFile {
  readonly name: string;
  readonly imports: readonly string[];
  /** Fully qualified names of everything the file declares. */
  readonly symbols: readonly string[];
  readonly bytes: Uint8Array;
}

/** The schema of all services: their files and what those import, each once. */
export function schemaFiles(): SchemaFile[] {
  const seen = new Map<string, SchemaFile>();
  const visit = (file: DescFile): void => {
    if (seen.has(file.proto.name)) return;
    for (const dependency of file.dependencies) visit(dependency);
    seen.set(file.proto.name, {
      name: file.proto.name,
      imports: file.dependencies.map((dependency) => dependency.proto.name),
      symbols: symbolsOf(file),
      bytes: toBinary(FileDescriptorProtoSchema, file.proto),
    });
  };
  for (const service of services) visit(service.file);
  return [...seen.values()];
}

function symbolsOf(file: DescFile): string[] {
  const out: string[] = [];
  const visit = (message: DescFile["messages"][number]): void => {
    out.push(message.typeName, ...message.fields.map((field) => `${message.typeName}.${field.name}`));
    for (const nested of message.nestedMessages) visit(nested);
    for (const nested of message.nestedEnums) out.push(nested.typeName);
  };
  for (const message of file.messages) visit(message);
  for (const type of file.enums) out.push(type.typeName);
  for (const service of file.services) out.push(service.typeName, ...service.methods.map((each) => `${service.typeName}.${each.name}`));
  return out;
}
