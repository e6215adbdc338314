/** The placement group: who belongs to the cluster, who holds and leads what, what is deployed. */
export { addressProblem, isLoopbackAddress, splitAddress } from "./address.ts";
export type {
  Bootstrap,
  CancelChange,
  Join,
  Lease,
  Leave,
  MergeCancel,
  MergeDoneReport,
  MergeFrozen,
  PlacementCommand,
  PlacementEffect,
  PlacementInput,
  PlacementReply,
  Remove,
  ReplicasChangedReport,
  SetReplication,
  WantMerge,
  WantReplicas,
  WantSplit,
} from "./command.ts";
export { decodeCommand, decodeReply, encodeCommand, encodeReply } from "./command-codec.ts";
export type { Entry, EntryClass, SetEntry } from "./entry.ts";
export { entryClasses } from "./entry.ts";
export type { PlacementFigures, PlacementOptions } from "./machine.ts";
export { PlacementMachine } from "./machine.ts";
export type { MemberPage } from "./members.ts";
export { pageOfMembers } from "./members.ts";
export { replicationDefault } from "./membership.ts";
export type { NodeEntry, NodeStanding } from "./node-entry.ts";
export { planCluster } from "./plan/plan.ts";
export type { NodeReport, PlanInput, PlanOptions, PlanStep, ShardLoadReport } from "./plan/plan-input.ts";
export { planDefaults } from "./plan/plan-input.ts";
export { decodeReport, encodeReport } from "./plan/report-codec.ts";
export type { Deploy, DeployedType, DeployedVersion, NamespaceDeployments, Route } from "./registry.ts";
export {
  leaseEpochsSkipped,
  type RestoredCluster,
  type RestoredShard,
  restoredPlacement,
  type UploadedPlacement,
  uploadedPlacement,
} from "./restored.ts";
export type { PendingChange, ReplicaSet, RetiredShard, ShardEntry, ShardLease } from "./shard-entry.ts";
export { holders, isSettled, isVoter, sameNodes } from "./shard-entry.ts";
export type { PlacementCheckpoint, PlacementRow } from "./unsaved-parts.ts";
export type { ClusterView } from "./view.ts";
export { bundleFor, deployedTypes, emptyView, leaderOf, shardAt, shardOf } from "./view.ts";
export { applyChanges, decodeView, encodeChanges, encodeView } from "./view-codec.ts";
