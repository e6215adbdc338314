/** Placement: what is deployed, decided and folded like everything else. */
export { type PlacementEffect, type PlacementInput, PlacementMachine, type PlacementOptions } from "./machine.ts";
export { type Deploy, type DeployedType, deployPartition, namespaceOfDeploy } from "./registry.ts";
