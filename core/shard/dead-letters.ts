/** Dead letters: compensations that failed for good, executed again or given up because somebody says so. */
import type { RequestId } from "#core/base";
import { decideDropLetter, decideReplayLetter } from "#core/run";
import { EventKind, type Identity } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LetterCommand } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { reject, respond } from "./replies.ts";
import { freeTask, offerFirst } from "./tasks.ts";

export function onLetterCommand(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: LetterCommand): void {
  const { run } = live;
  const { letter } = command;
  const decision = command.kind === "replay-letter" ? decideReplayLetter(run, letter) : decideDropLetter(run, letter, command.reason);
  if (decision !== "already" && "reject" in decision) return reject(ctx, request, decision, live);
  if (decision !== "already") {
    const replay = run.deadLetters.find((one) => one.letter === letter)?.replay ?? 0;
    ctx.append(live, decision, identity);
    const task = live.tasks.get(replay);
    if (decision.kind === EventKind.deadLetterReplayed) offerFirst(ctx, live, decision.body.op);
    else if (task !== undefined) freeTask(ctx, live, task, "The dead letter was dropped");
  }
  respond(ctx, request, live, { kind: "done" });
}
