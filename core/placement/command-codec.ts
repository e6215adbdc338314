/** Commands and answers to and from the bytes that nodes send each other. */
import { asIndex, asNodeId, asShardId, asTerm, type Reason, reasons, unreachable } from "#core/base";
import {
  CodecError,
  decodePlacementAnswer,
  decodePlacementCommand,
  encodePlacementAnswer,
  encodePlacementCommand,
  fromBytes,
  type NodeInfo,
  type PlacementAnswerInit,
  type PlacementCommandInit,
  toBytes,
} from "#proto";
import type { PlacementCommand, PlacementReply } from "./command.ts";
import { emptyInfo } from "./node-entry.ts";
import { loadReplicas, saveReplicas } from "./shard-entry.ts";

export const encodeCommand = (command: PlacementCommand): Uint8Array => toBytes(encodePlacementCommand, wired(command));

function wired(command: PlacementCommand): PlacementCommandInit {
  switch (command.kind) {
    case "bootstrap":
      return { kind: "bootstrap", value: command };
    case "leave":
      return { kind: "leave", value: command };
    case "remove":
      return { kind: "remove", value: command };
    case "join":
      return { kind: "join", value: command };
    case "lease": {
      const { born } = command;
      const birth = born && { ...born, replicas: born.replicas && saveReplicas(born.replicas) };
      return { kind: "lease", value: { ...command, born: birth, ahead: command.isAhead ?? false } };
    }
    case "replicas-changed":
      return { kind: "replicasChanged", value: { shard: command.shard, replicas: saveReplicas(command.replicas) } };
    case "want-replicas":
      return { kind: "wantReplicas", value: { shard: command.shard, node: command.nodes } };
    case "want-split":
      return { kind: "wantSplit", value: command };
    case "want-merge":
      return { kind: "wantMerge", value: command };
    case "merge-frozen":
      return { kind: "mergeFrozen", value: command };
    case "merge-done":
      return { kind: "mergeDone", value: command };
    case "merge-cancel":
      return { kind: "mergeCancel", value: command };
    case "cancel-change":
      return { kind: "cancelChange", value: command };
    case "set-replication":
      return { kind: "setReplication", value: command };
    case "set-entry": {
      const checked = command.expected !== undefined;
      return { kind: "setEntry", value: { ...command, checked, expected: command.expected ?? 0 } };
    }
    case "deploy":
      return { kind: "deploy", value: { namespace: command.namespace, ...command.deploy, type: command.deploy.types } };
    case "route": {
      const { percent, ...same } = command.route;
      return { kind: "route", value: { namespace: command.namespace, ...same, ramp: percent !== undefined, percent: percent ?? 0 } };
    }
    default:
      return unreachable(command);
  }
}

/** Reads a command; its byte fields are views into `bytes`. Throws `CodecError`. */
export function decodeCommand(bytes: Uint8Array): PlacementCommand {
  const message = fromBytes(decodePlacementCommand, bytes);
  switch (message.kind) {
    case "bootstrap": {
      const { clusterId, info, replicationWanted, shards } = message.value;
      return { kind: "bootstrap", clusterId, info: infoOf(info), ...set({ replicationWanted, shards }) };
    }
    case "join": {
      const { clusterId, node, info } = message.value;
      return { kind: "join", info: infoOf(info), ...set({ clusterId, node: asNodeId(node) }) };
    }
    case "leave":
      return { kind: "leave", node: asNodeId(message.value.node) };
    case "remove":
      return { kind: "remove", node: asNodeId(message.value.node) };
    case "lease": {
      const { shard, node, term, born, ahead } = message.value;
      const lease = {
        kind: "lease",
        shard: asShardId(shard),
        node: asNodeId(node),
        term: asTerm(term),
        ...(ahead ? { isAhead: true } : {}),
      } as const;
      if (born === undefined) return lease;
      const birth = { parent: asShardId(born.parent), at: born.at };
      return { ...lease, born: born.replicas === undefined ? birth : { ...birth, replicas: loadReplicas(born.replicas) } };
    }
    case "replicasChanged":
      return { kind: "replicas-changed", shard: asShardId(message.value.shard), replicas: loadReplicas(message.value.replicas) };
    case "wantReplicas":
      return { kind: "want-replicas", shard: asShardId(message.value.shard), nodes: message.value.node.map(asNodeId) };
    case "wantSplit":
      return { kind: "want-split", shard: asShardId(message.value.shard), at: message.value.at };
    case "wantMerge":
      return { kind: "want-merge", ...pair(message.value) };
    case "mergeFrozen": {
      const { change, through, epoch } = message.value;
      return { kind: "merge-frozen", ...pair(message.value), change, through: asIndex(through), epoch };
    }
    case "mergeDone":
      return { kind: "merge-done", ...pair(message.value) };
    case "mergeCancel":
      return { kind: "merge-cancel", ...pair(message.value) };
    case "cancelChange": {
      const { shard, epoch, reason } = message.value;
      return { kind: "cancel-change", shard: asShardId(shard), ...set({ epoch, reason }) };
    }
    case "setReplication":
      return { kind: "set-replication", count: message.value.count, ...set({ reason: message.value.reason }) };
    case "setEntry": {
      const { class: entryClass, name, value, removed, checked, expected } = message.value;
      return { kind: "set-entry", class: entryClass, name, value, ...set({ removed }), ...(checked ? { expected } : {}) };
    }
    case "deploy": {
      const { namespace, bundle, size, type, held } = message.value;
      return { kind: "deploy", namespace, deploy: { bundle, size, types: type, ...set({ held }) } };
    }
    case "route": {
      const { namespace, type, version, ramp, percent, reason } = message.value;
      return { kind: "route", namespace, route: { type, version, reason, ...(ramp ? { percent } : {}) } };
    }
    case "unknown":
      throw new CodecError("Cannot read a command to placement: this version does not know its kind");
    default:
      return unreachable(message);
  }
}

const infoOf = (info: NodeInfo | undefined): NodeInfo => info ?? emptyInfo;

const pair = (value: { readonly left: number; readonly right: number }) => ({ left: asShardId(value.left), right: asShardId(value.right) });

/** The fields that were sent: a default was left out. */
function set<T extends object>(fields: T): Partial<T> {
  const given = Object.entries(fields).filter(([, value]) => value !== 0 && value !== "" && value !== false);
  return Object.fromEntries(given) as Partial<T>;
}

export const encodeReply = (reply: PlacementReply): Uint8Array => toBytes(encodePlacementAnswer, answered(reply));

function answered(reply: PlacementReply): PlacementAnswerInit {
  if (reply.kind !== "rejected") return { kind: reply.kind, value: reply } as PlacementAnswerInit;
  const { reject, message, retryAfterMs = 0, epoch = 0 } = reply.rejection;
  return { kind: "rejected", value: { reason: reject, message, retryAfterMs, epoch } };
}

/** Throws `CodecError`. */
export function decodeReply(bytes: Uint8Array): PlacementReply {
  const message = fromBytes(decodePlacementAnswer, bytes);
  switch (message.kind) {
    case "done":
      return { kind: "done" };
    case "joined": {
      const { clusterId, node, objects, restoreEpoch } = message.value;
      return { kind: "joined", clusterId, node: asNodeId(node), ...set({ objects, restoreEpoch }) };
    }
    case "leased":
      return { kind: "leased", ...message.value };
    case "split":
      return { kind: "split", child: asShardId(message.value.child), change: message.value.change };
    case "merge":
      return { kind: "merge", ...message.value };
    case "removed":
      return { kind: "removed", ...message.value };
    case "version":
      return { kind: "version", ...message.value };
    case "rejected": {
      const { reason, message: text, retryAfterMs, epoch } = message.value;
      // A reason of a later version.
      const reject: Reason = reason in reasons ? (reason as Reason) : "INTERNAL";
      return { kind: "rejected", rejection: { reject, message: text, ...set({ retryAfterMs, epoch }) } };
    }
    case "unknown":
      throw new CodecError("Cannot read an answer of placement: this version does not know its kind");
    default:
      return unreachable(message);
  }
}
