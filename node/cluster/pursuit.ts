/** One command on its way to a leader that takes it. */
import type { Reply, ShardId } from "#core/base";
import { type Command, partitionOfCommand, verbs as runVerbs } from "#core/shard";
import { asHopError } from "../service/status.ts";
import type { Gate, Waiter } from "./gate.ts";
import type { Known } from "./remote-shard.ts";
import type { Asking, Lead, Router } from "./router.ts";
import type { ShardPlace } from "./shard-map.ts";

/** Longer than an election takes. Whoever asks a node that is cut off has to be told, so that it asks another one. */
export const budgetMsDefault = 2_000;
/** What was refused after a wait longer than this has a new budget. */
export const longWaitMs = 1000;

/** Proves that nothing was decided. */
export const isUndecided = (reject: string) => reject === "NOT_LEADER" || reject === "STALE_EPOCH";

type Rejected = Extract<Reply, { kind: "rejected" }>;

/**
 * Whether a refused command may be asked elsewhere: it was decided nowhere, or it only waits for a
 * result, which changes nothing.
 */
export function mayAskAgain(command: Command, { rejection, started }: Rejected, known: Known): boolean {
  if (isUndecided(rejection.reject) || known.isUnsent === true) return true;
  if (rejection.reject !== "STORE_UNAVAILABLE") return false;
  return command.kind === "await-result" || command.kind === "consume" || command.kind === "call" || started !== undefined;
}

export interface Pursued {
  readonly asking: Asking;
  readonly command: Command;
  readonly done: (reply: Reply) => void;
}

export class Pursuit implements Waiter {
  private readonly router: Router;
  private readonly asking: Asking;
  private readonly done: (reply: Reply) => void;
  /** What is asked next: a start that was taken goes on as a wait for its outcome. */
  private command: Command;
  private started: NonNullable<Rejected["started"]> | undefined;
  deadlineMs = 0;
  private gate: Gate | undefined;
  private startedMs = 0;
  private lastRefusal = "";
  private shard: ShardId | undefined;
  /** Whom it was asked of last. */
  private asked: Lead | undefined;
  private stop: (() => void) | undefined;
  private isOver = false;

  constructor(router: Router, { asking, command, done }: Pursued) {
    this.router = router;
    this.asking = asking;
    this.command = command;
    this.done = done;
  }

  begin(): () => void {
    this.retry();
    return () => this.forget();
  }

  /** A leader refused it in a way that allows to ask again. */
  resume(place: ShardPlace, reply: Rejected): void {
    this.startedMs = this.router.nowMs;
    this.asked = { shard: place.shard, isHere: true, leaseEpoch: place.leaseEpoch };
    this.answered(place, reply, {});
  }

  /** The caller no longer waits. */
  forget(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.gate?.remove(this);
    this.stop?.();
  }

  retry(): void {
    this.gate = undefined;
    if (this.isOver) return;
    this.startedMs = this.router.nowMs;
    try {
      this.asked = this.router.lead(partitionOfCommand(this.command));
      const tried = this.router.tryOnce(this.command, this.asking, (place, reply, known) => {
        if (!this.isOver) this.answered(place, reply, known);
      });
      if (typeof tried === "function") this.stop = tried;
      else this.wait(tried, "no node leads it");
    } catch (error) {
      const { reason, message } = asHopError(error);
      this.finish({ kind: "rejected", rejection: { reject: reason, message } });
    }
  }

  expire(): void {
    this.gate = undefined;
    const { command, router, shard } = this;
    const sinceMs = shard === undefined ? 0 : router.nowMs - router.gateOf(shard).sinceMs;
    const why = router.isStopping
      ? "this node is shutting down"
      : `shard ${shard} has had no leader that takes it for ${(sinceMs / 1000).toFixed(1)} s`;
    const fate = this.started === undefined ? "nothing was done" : "it was started, and its outcome is not known";
    const message = `Cannot ${verbs[command.kind]} ${command.run}: ${why} (last: ${this.lastRefusal}); ${fate}, try again`;
    this.finish({ kind: "rejected", rejection: { reject: "STORE_UNAVAILABLE", message, retryAfterMs: 500 } });
  }

  private answered(place: ShardPlace, reply: Reply, known: Known): void {
    this.stop = undefined;
    if (reply.kind !== "rejected") return this.finish(this.whole(reply));
    this.router.noteHint(place, known);
    if (!mayAskAgain(this.command, reply, known)) return this.finish(reply);
    const { reject, message } = reply.rejection;
    if (reject === "STALE_EPOCH" && this.asking.epoch !== 0) {
      return this.finish({ kind: "rejected", rejection: { ...reply.rejection, epoch: this.router.epoch } });
    }
    if (reply.started !== undefined) {
      this.started = reply.started;
      const { run, ticket = 0, generation } = reply.started;
      this.command = { kind: "await-result", run, ticket, generation: ticket > 0 ? 0 : generation };
    }
    this.wait(place, message);
  }

  /** The outcome of a start that was taken earlier, as the start's own reply. */
  private whole(reply: Reply): Reply {
    const { started } = this;
    if (started === undefined || reply.kind !== "outcome") return reply;
    const { generation } = reply;
    if (started.ticket !== undefined || generation === started.generation) {
      return { kind: "started", ...started, generation, outcome: reply.outcome };
    }
    // A node of an older version looks at the name only.
    const message = `Cannot wait for generation ${started.generation} of ${started.run}: it has ended, and generation ${generation} came after it; its history has its result`;
    return { kind: "rejected", rejection: { reject: "RUN_CLOSED", message } };
  }

  private wait(place: ShardPlace, refusal: string): void {
    const { nowMs } = this.router;
    if (this.deadlineMs === 0 || nowMs - this.startedMs > longWaitMs) this.deadlineMs = nowMs + (this.asking.budgetMs ?? budgetMsDefault);
    this.lastRefusal = refusal;
    this.shard = place.shard;
    if (this.router.isStopping) return this.expire();
    // What it would wait for has come while it was under way.
    if (this.hasNews()) return this.retry();
    this.gate = this.router.gateOf(place.shard);
    this.gate.add(this);
  }

  /** More is known of who leads than when it was asked: that only grows, so it ends. */
  private hasNews(): boolean {
    const { asked } = this;
    if (asked === undefined) return false;
    const lead = this.router.lead(partitionOfCommand(this.command));
    return lead.shard !== asked.shard || lead.leaseEpoch > asked.leaseEpoch || (lead.isHere && !asked.isHere);
  }

  private finish(reply: Reply): void {
    if (this.isOver) return;
    this.isOver = true;
    this.done(reply);
    const { router, shard } = this;
    // Not from within: each one taken brings others, and a thousand that are answered at once would call each other.
    if (shard !== undefined && reply.kind !== "rejected") queueMicrotask(() => router.gateOf(shard).taken());
  }
}

const verbs: Readonly<Record<Command["kind"], string>> = {
  ...runVerbs,
  start: "start",
  schedule: "change schedule",
  channel: "use channel",
};
