/** Holds a run and lets it go on: nothing of it begins meanwhile, and nothing that happens to it is lost. */
import type { RequestId } from "#core/base";
import { decidePause, decideUnpause, isReplayOp } from "#core/run";
import type { Identity } from "#proto";
import type { ShardContext } from "./context.ts";
import type { Command } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { leaveWorker } from "./outcome.ts";
import { pumpQueries } from "./queries.ts";
import { reject, respond } from "./replies.ts";
import { place } from "./tasks.ts";

type PauseCommand = Extract<Command, { kind: "pause" | "unpause" }>;

export function onPause(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: PauseCommand): void {
  const decide = command.kind === "pause" ? decidePause : decideUnpause;
  const decision = decide(live.run, command.reason);
  if (decision !== "already" && "reject" in decision) return reject(ctx, request, decision, live);
  if (decision !== "already") {
    // What its code asks for now counts for nothing, and what it was built for since may be a query: it is built anew when it goes on.
    leaveWorker(ctx, live);
    ctx.append(live, decision, identity);
    if (command.kind === "unpause") offerHeld(ctx, live);
    // A query that the worker was to be built for is asked again.
    pumpQueries(ctx, live);
  }
  respond(ctx, request, live, { kind: "done" });
}

/** Activities that could have begun meanwhile. One whose worker may still come back is offered when that time is over. */
function offerHeld(ctx: ShardContext, live: LiveRun): void {
  for (const task of [...live.tasks.values()]) {
    if (task.session !== undefined || task.orphanUntilMs > 0 || isReplayOp(task.op)) continue;
    const o = live.run.pending.get(task.op);
    if (o !== undefined) place(ctx, live, o, task);
  }
}
