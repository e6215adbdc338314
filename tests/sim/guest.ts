/**
 * A workflow in execution: what a sandbox does with a program, delivery by delivery.
 *
 * Deterministic: equal deliveries in equal order give equal commands, however they were batched.
 * `digest` sums up everything that the run was told and concluded.
 */

import type { RunEvent } from "#core/run";
import { type CommandInit, CommandKind, CompensationTrigger, EventKind, type FailureInit } from "#proto";
import { type Node, sumChannel } from "./program.ts";

const text = new TextEncoder();

/** Undefined = it went well. */
type Fault = string | undefined;
type Done = (fault: Fault) => void;

/** A part of the program under way. */
interface Part {
  /** A cancellation reaches what it waits for. */
  interrupt(): void;
  /** Nobody is interested any more: open operations are withdrawn, and it never ends. */
  abandon(): void;
}

export const cancelled = "cancelled";

export class Guest {
  digest = 0;
  cancelSeen = false;
  /** Sequence of the last event that was delivered; −1 = none. */
  lastSeq = -1;
  private nextOp = 1;
  private commands: CommandInit[] = [];
  private readonly waiting = new Map<number, (fault: Fault) => void>();
  /** What follows on the start of a child, by its operation. */
  private readonly children = new Map<number, Done>();
  private readonly waiters: { readonly name: string; readonly op: number }[] = [];
  private readonly buffered = new Map<string, number>();
  private readonly program: Node;
  private root: Part | undefined;
  private isOver = false;

  constructor(program: Node) {
    this.program = program;
  }

  /** Delivers one event and lets the program run dry. */
  deliver(event: RunEvent, seq: number, timeMs: number): void {
    this.lastSeq = seq;
    this.fold(seq, timeMs);
    switch (event.kind) {
      case EventKind.runStarted:
        this.begin();
        break;
      case EventKind.activityCompleted:
        this.foldBytes(event.body.result?.data);
        this.settle(event.body.op, undefined);
        break;
      case EventKind.activityFailed:
        this.settle(event.body.op, event.body.failure?.type ?? "?");
        break;
      case EventKind.timerFired:
        this.settle(event.body.op, undefined);
        break;
      case EventKind.signalReceived:
        this.signal(event.body.name, event.body.payload?.data);
        break;
      case EventKind.signalSettled:
        this.settle(event.body.op, event.body.failure?.type);
        break;
      case EventKind.resultReceived:
        this.foldBytes(event.body.result?.data);
        this.settle(event.body.op, event.body.failure?.type);
        break;
      case EventKind.chunkYielded:
        this.settle(event.body.op, event.body.refused ? "StreamDisconnectedError" : undefined);
        break;
      case EventKind.channelSendSettled:
        this.settle(event.body.op, event.body.failure?.type);
        break;
      case EventKind.channelReceived:
        this.fold(event.body.offset, event.body.count);
        this.foldBytes(event.body.batch?.data);
        this.settle(event.body.op, event.body.failure?.type);
        break;
      case EventKind.childStarted:
        this.childStarted(event.body);
        break;
      case EventKind.childEnded:
        this.foldBytes(event.body.result?.data);
        this.settle(event.body.op, event.body.failure?.type);
        break;
      case EventKind.cancelRequested:
        this.cancelSeen = true;
        this.root?.interrupt();
        break;
      default:
        break;
    }
  }

  takeCommands(): CommandInit[] {
    const { commands } = this;
    this.commands = [];
    return commands;
  }

  private begin(): void {
    // It may end at once, before there is a root to interrupt.
    this.root = this.run(this.program, (fault) => this.end(fault));
  }

  private end(fault: Fault): void {
    if (this.isOver) return;
    this.isOver = true;
    const said = JSON.stringify({ digest: this.digest, seen: this.lastSeq, cancelSeen: this.cancelSeen });
    if (fault === undefined) this.commands.push({ kind: CommandKind.complete, payload: { data: text.encode(said), ref: undefined } });
    else if (fault === cancelled) this.commands.push({ kind: CommandKind.cancelled, failure: failure("CancelledError", said) });
    else this.commands.push({ kind: CommandKind.fail, failure: failure(fault, said) });
  }

  private settle(op: number, fault: Fault): void {
    const then = this.waiting.get(op);
    if (then === undefined) return;
    this.waiting.delete(op);
    this.fold(op, fault === undefined ? 1 : 2);
    then(fault);
  }

  private childStarted({ op, generation, failure }: { op: number; generation: number; failure: FailureInit | undefined }): void {
    this.fold(op, generation);
    const then = this.children.get(op);
    this.children.delete(op);
    if (failure !== undefined) this.waiting.delete(op);
    then?.(failure?.type);
  }

  private signal(name: string, data: Uint8Array | undefined): void {
    this.foldBytes(data);
    const at = this.waiters.findIndex((w) => w.name === name);
    if (at < 0) {
      this.buffered.set(name, (this.buffered.get(name) ?? 0) + 1);
      return;
    }
    const [waiter] = this.waiters.splice(at, 1);
    if (waiter !== undefined) this.settle(waiter.op, undefined);
  }

  private run(node: Node, done: Done): Part {
    switch (node.kind) {
      case "activity":
        return this.leaf(
          { kind: CommandKind.activity, name: node.name, payload: { data: text.encode(JSON.stringify(node.plan)) }, options: node.options },
          done,
        );
      case "sleep":
        return this.leaf({ kind: CommandKind.timer, durationMs: node.ms }, done);
      case "signal":
        return this.awaitSignal(node.name, done);
      case "send":
        return this.leaf(
          { kind: CommandKind.sendSignal, to: node.to, name: node.name, payload: { data: text.encode(`${this.digest}/${this.nextOp}`) } },
          done,
        );
      case "await":
        return this.leaf({ kind: CommandKind.awaitResult, to: node.to }, done);
      case "chunk":
        return this.leaf({ kind: CommandKind.yieldChunk, payload: { data: text.encode(`${this.digest}/${this.nextOp}`) } }, done);
      case "publish": {
        const json = node.to === sumChannel ? `${this.nextOp}` : `"${this.digest}/${this.nextOp}"`;
        return this.leaf({ kind: CommandKind.sendChannel, to: node.to, payload: { data: text.encode(json) } }, done);
      }
      case "read":
        return this.leaf({ kind: CommandKind.readChannel, to: node.to, messagesMax: node.max, lingerMs: node.lingerMs }, done);
      case "undo":
        return this.register(node, done);
      case "spawn":
        return this.spawn(node, done);
      case "seq":
        return this.sequence(node.of, done);
      case "all":
        return this.together(node.of, done, false);
      case "race":
        return this.together(node.of, done, true);
      case "guard":
        return this.guard(node, done);
    }
  }

  private leaf(command: CommandInit, done: Done): Part & { readonly op: number } {
    const op = this.nextOp++;
    this.commands.push({ ...command, op });
    this.waiting.set(op, done);
    const withdraw = () => {
      if (!this.waiting.delete(op)) return false;
      const at = this.waiters.findIndex((w) => w.op === op);
      if (at >= 0) this.waiters.splice(at, 1);
      this.commands.push({ kind: CommandKind.cancelOp, op });
      return true;
    };
    return { op, abandon: () => void withdraw(), interrupt: () => void (withdraw() && done(cancelled)) };
  }

  private register({ name, plan, always, attempts }: Extract<Node, { kind: "undo" }>, done: Done): Part {
    const payload = { data: text.encode(JSON.stringify(plan)) };
    const options = { retry: { attemptsMax: attempts, initialMs: 50, intervalMsMax: 500, backoffMilli: 2000 } };
    const trigger = always ? CompensationTrigger.always : CompensationTrigger.onFailure;
    this.commands.push({ kind: CommandKind.compensate, op: this.nextOp++, name, payload, trigger, options });
    done(undefined);
    return { interrupt: () => {}, abandon: () => {} };
  }

  /** Waits for the child's start, then perhaps for its end; whoever is interrupted leaves it alone. */
  private spawn({ to, type, contention, policy, waits }: Extract<Node, { kind: "spawn" }>, done: Done): Part {
    const op = this.nextOp++;
    const overrideReason = contention === "supersede" ? "a newer one" : "";
    const start = { contention, overrideReason };
    this.commands.push({ kind: CommandKind.spawn, op, to, name: type, start, closePolicy: policy, ownCode: true });
    let isLeft = false;
    this.children.set(op, (fault) => {
      if (isLeft) return;
      if (fault !== undefined || !waits) return done(fault);
      this.waiting.set(op, done);
    });
    const leave = () => {
      const wasLeft = isLeft || (!this.children.has(op) && !this.waiting.has(op));
      isLeft = true;
      this.waiting.delete(op);
      return !wasLeft;
    };
    return { abandon: () => void leave(), interrupt: () => void (leave() && done(cancelled)) };
  }

  private awaitSignal(name: string, done: Done): Part {
    const part = this.leaf({ kind: CommandKind.awaitSignal, name }, done);
    const waiting = this.buffered.get(name) ?? 0;
    if (waiting === 0) this.waiters.push({ name, op: part.op });
    else {
      this.buffered.set(name, waiting - 1);
      this.settle(part.op, undefined);
    }
    return part;
  }

  private sequence(of: readonly Node[], done: Done): Part {
    let at = 0;
    let current: Part | undefined;
    let isOver = false;
    const next = (fault: Fault): void => {
      if (isOver) return;
      const node = of[at++];
      if (fault !== undefined || node === undefined) {
        isOver = true;
        return done(fault);
      }
      const before = at;
      const part = this.run(node, next);
      // A part that ended at once has gone on already.
      if (at === before && !isOver) current = part;
    };
    next(undefined);
    return {
      interrupt: () => current?.interrupt(),
      abandon: () => {
        isOver = true;
        current?.abandon();
      },
    };
  }

  private together(of: readonly Node[], done: Done, isRace: boolean): Part {
    const parts: Part[] = [];
    let left = of.length;
    let isOver = false;
    const finish = (fault: Fault): void => {
      isOver = true;
      for (const part of parts) part.abandon();
      done(fault);
    };
    for (const node of of) {
      if (isOver) break;
      const part = this.run(node, (fault) => {
        if (isOver) return;
        if (fault !== undefined || isRace || --left === 0) finish(fault);
      });
      parts.push(part);
      if (isOver) part.abandon();
    }
    return {
      interrupt: () => {
        for (const part of parts) if (!isOver) part.interrupt();
      },
      abandon: () => {
        isOver = true;
        for (const part of parts) part.abandon();
      },
    };
  }

  /** The cleanup runs whatever happened to the body, and no cancellation reaches it. */
  private guard(node: Extract<Node, { kind: "guard" }>, done: Done): Part {
    let isBody = true;
    let cleanup: Part | undefined;
    let isAbandoned = false;
    const body = this.run(node.body, (fault) => {
      if (isAbandoned) return;
      isBody = false;
      if (fault === undefined) return done(undefined);
      cleanup = this.run(node.cleanup, (again) => {
        if (!isAbandoned) done(again ?? (node.swallows && fault !== cancelled ? undefined : fault));
      });
    });
    return {
      interrupt: () => {
        if (isBody) body.interrupt();
      },
      abandon: () => {
        isAbandoned = true;
        body.abandon();
        cleanup?.abandon();
      },
    };
  }

  private fold(a: number, b: number): void {
    this.digest = (Math.imul(this.digest ^ a, 0x01000193) ^ Math.imul(b % 0x7fffffff, 0x85ebca6b)) >>> 0;
  }

  private foldBytes(data: Uint8Array | undefined): void {
    for (const byte of data ?? []) this.digest = Math.imul(this.digest ^ byte, 0x01000193) >>> 0;
  }
}

export function failure(type: string, message: string): FailureInit {
  return { type, message };
}
