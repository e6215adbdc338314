/** Runs the public scenarios of membership changes, apart from any member. */
import type { NodeId } from "#core/base";
import { type ConfState, membersOf, noConf } from "#core/raft";
import { type Changed, changeSimply, enterJoint, leaveJoint } from "../../core/raft/membership.ts";
import { Progress } from "../../core/raft/progress.ts";
import type { Directive } from "../datadriven.ts";
import { changesOf, describeConf, describeProgress } from "./describe.ts";

/** A configuration that changes from directive to directive. */
export function confChangeDirectives(): (directive: Directive) => string {
  let conf: ConfState = noConf;
  let progress = new Map<NodeId, Progress>();
  let lastIndex = 0;

  const change = ({ cmd, args, input }: Directive): Changed => {
    const changes = changesOf(input);
    if (cmd === "simple") return changeSimply(conf, changes);
    if (cmd === "enter-joint") return enterJoint(conf, changes, args.get("autoleave") === "true");
    if (cmd !== "leave-joint") throw new SyntaxError(`Cannot run ${cmd}`);
    return changes.length > 0 ? { problem: "this command takes no input" } : leaveJoint(conf);
  };

  return (directive) => {
    const changed = change(directive);
    const next = Math.max(lastIndex, 1);
    lastIndex++;
    if ("problem" in changed) return changed.problem;
    conf = changed.conf;
    const kept = progress;
    progress = new Map();
    for (const id of membersOf(conf)) {
      const isLearner = conf.learners.includes(id);
      const known = changed.renewed.has(id) ? undefined : kept.get(id);
      const each = known ?? new Progress(id, { next, isLearner, maxInflight: 10, maxInflightBytes: Number.POSITIVE_INFINITY });
      if (known === undefined) each.recentActive = true;
      each.isLearner = isLearner;
      progress.set(id, each);
    }
    const shown = [...progress.values()].map((each) => {
      const { match, state, isLearner, pendingSnapshot, recentActive } = each;
      const rest = { isPaused: each.isPaused(), inflightCount: 0, isInflightFull: false };
      return `${each.id}: ${describeProgress({ match, next: each.next, state, isLearner, pendingSnapshot, recentActive, ...rest })}`;
    });
    return [describeConf(conf), ...shown].join("\n");
  };
}
