/**
 * What is to be done next about the cluster, from what is known of it: a pure function, run once
 * a second by whoever leads placement.
 *
 * A plan is a few steps toward where the cluster should be. What was done is seen in the next
 * round's view, so nothing is remembered in between, and a step that was lost is planned again.
 * What is urgent comes first; evening out waits until nothing else moves.
 */
import { planLeaderBalance, planReplicaBalance } from "./balance-plan.ts";
import { planHandOvers, planRemovals, planSpace } from "./drain-plan.ts";
import { planCancels, planMerges, planSplits } from "./key-plan.ts";
import { Outlook } from "./outlook.ts";
import type { PlanInput, PlanStep } from "./plan-input.ts";
import { planReplicas } from "./replica-plan.ts";

export function planCluster(input: PlanInput): PlanStep[] {
  const outlook = new Outlook(input);
  planCancels(outlook);
  if (input.view.clusterId === "" || outlook.isListening) return outlook.steps;
  planRemovals(outlook);
  planHandOvers(outlook);
  planSpace(outlook);
  planReplicas(outlook);
  planSplits(outlook);
  planMerges(outlook);
  const isCalm = outlook.movesUnderWay() === 0;
  if (isCalm) planReplicaBalance(outlook);
  if (isCalm && outlook.steps.length === 0) planLeaderBalance(outlook);
  return outlook.steps;
}
