/**
 * Does what Core asks for, each effect when its barrier is reached and in the order of the asking.
 *
 * Invariant: nothing that rests on an event leaves this node before the event is durable; only
 * activations of pure workflow code run ahead.
 */
import type { Effect, ReplayEffect, Reply, RequestId, SessionId, TaskEffect } from "#core/base";
import { unreachable } from "#core/base";
import type { ServerItemInit } from "#proto";
import type { WorkerLink } from "./shard-port.ts";

export interface EffectTargets {
  readonly links: ReadonlyMap<SessionId, WorkerLink>;
  reply(request: RequestId, reply: Reply): void;
  replay(effect: ReplayEffect): void;
  dropped(session: SessionId, handle: number): void;
  armTimer(atMs: number): void;
  mail(effect: Extract<Effect, { kind: "send" }>): void;
}

type Gated = { readonly index: number; readonly effect: Effect };

export class EffectRunner {
  private readonly targets: EffectTargets;
  private gated: Gated[] = [];
  private gatedReplays = 0;
  /** Effects whose barrier is reached, while they are run: what one of them causes here comes behind the others. */
  private ready: Effect[] = [];
  private isRunning = false;

  constructor(targets: EffectTargets) {
    this.targets = targets;
  }

  /** Effects that wait for their barrier. */
  get waiting(): number {
    return this.gated.length;
  }

  /** Runs what may run now. Returns whether something waits for a commit that has not happened. */
  take(effects: readonly Effect[], durableIndex: number): boolean {
    let waits = false;
    for (const effect of effects) {
      const { after } = effect;
      if (after.until === "now" || after.index <= durableIndex) this.ready.push(effect);
      else {
        this.gated.push({ index: after.index, effect });
        if (effect.kind === "replay") this.gatedReplays++;
        waits = true;
      }
    }
    this.runReady();
    return waits;
  }

  /** The log is durable through `index`. */
  release(durableIndex: number): void {
    const { gated } = this;
    if (gated.length === 0) return;
    let kept = 0;
    for (const each of gated) {
      if (each.index > durableIndex) gated[kept++] = each;
      else {
        this.ready.push(each.effect);
        if (each.effect.kind === "replay") this.gatedReplays--;
      }
    }
    gated.length = kept;
    this.runReady();
  }

  /** A message to a run of this node, or a reply, may bring the next step before the effects of this one have left. */
  private runReady(): void {
    if (this.isRunning || this.ready.length === 0) return;
    this.isRunning = true;
    try {
      for (let i = 0; i < this.ready.length; i++) this.run(this.ready[i] as Effect);
    } finally {
      this.ready = [];
      this.isRunning = false;
    }
  }

  private run(effect: Effect): void {
    const { targets } = this;
    switch (effect.kind) {
      case "activate": {
        const { handle, activation, events, start } = effect;
        const value =
          start === undefined
            ? { handle, activation, events }
            : { handle, activation, events, fromStart: true, run: start.run, bundle: start.bundle, type: start.type };
        return this.send(effect.session, { kind: "activate", value });
      }
      case "replay":
        return targets.replay(effect);
      case "task":
        return this.send(effect.session, { kind: "task", value: taskOf(effect) });
      case "cancel-task":
        return this.send(effect.session, { kind: "cancelTask", value: { token: effect.token, reason: effect.reason } });
      case "query": {
        const { query, handle, name, input } = effect;
        return this.send(effect.session, { kind: "query", value: { query, handle, name, input } });
      }
      case "drop":
        this.forgetReplay(effect.session, effect.handle);
        targets.dropped(effect.session, effect.handle);
        return this.send(effect.session, { kind: "drop", value: { handle: effect.handle } });
      case "reply":
        return targets.reply(effect.request, effect.reply);
      case "send":
        return targets.mail(effect);
      case "arm-timer":
        return targets.armTimer(effect.atMs);
      default:
        return unreachable(effect);
    }
  }

  /** A run that was taken away is not rebuilt there after all. */
  private forgetReplay(session: SessionId, handle: number): void {
    const isIts = ({ effect }: Gated) => effect.kind === "replay" && effect.session === session && effect.handle === handle;
    if (this.gatedReplays === 0 || !this.gated.some(isIts)) return;
    this.gated = this.gated.filter((each) => !isIts(each));
    this.gatedReplays--;
  }

  /** To a session that has gone meanwhile nothing is sent: Core is told of its end. */
  private send(session: SessionId, item: ServerItemInit): void {
    this.targets.links.get(session)?.send(item);
  }
}

function taskOf(effect: TaskEffect) {
  const { token, name, input, heartbeat, number, workflowType, options } = effect;
  return {
    token,
    name,
    input,
    heartbeat,
    number,
    workflowType,
    startToCloseMs: options?.startToCloseMs ?? 0,
    heartbeatMs: options?.heartbeatMs ?? 0,
    idempotencyKey: options?.idempotencyKey ?? "",
  };
}
