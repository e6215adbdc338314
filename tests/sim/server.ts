/**
 * One life of the server: the real shard machine, effect runner, clock and log store, in a shell
 * that lives in virtual time. It does what `node/shard/shard-host.ts` does.
 */
import {
  asIndex,
  asRequestId,
  asSessionId,
  asShardId,
  asTerm,
  type Effect,
  type Index,
  type ReplayEffect,
  type Reply,
  type RequestId,
  type RunId,
  type SessionId,
} from "#core/base";
import { type Command, type Input, ShardMachine } from "#core/shard";
import {
  decodeServerItem,
  encodeServerItem,
  fromBytes,
  type Hello,
  type Identity,
  type ServerItem,
  toBytes,
  type WorkerItem,
} from "#proto";
import { EffectRunner } from "../../node/shard/effect-runner.ts";
import { PhysicalClock } from "../../node/shard/physical-clock.ts";
import type { WorkerLink } from "../../node/shard/shard-port.ts";
import { MemoryLogStore } from "../../store/log/memory-log-store.ts";
import { bunHasher } from "../hashers.ts";
import { causeOf, checkReply } from "./check/replies.ts";
import type { Answer, Ask } from "./client.ts";
import { readHistory } from "./history-reader.ts";
import { watched } from "./journal.ts";
import type { JournalEvent } from "./model.ts";
import type { Simulation } from "./simulation.ts";

export const shard = asShardId(1);
const identity: Identity = { issuer: "local", subject: "sim", verified: false, causeSeq: 0 };
const roomPollMs = 100;

type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

/** The way to a worker. */
export interface PeerLink {
  send(item: ServerItem): void;
  close(reason: string): void;
}

/** What the server knows of one stream. */
export interface ServerEnd {
  session: SessionId | undefined;
  readonly requests: Map<RequestId, Ask>;
}

export class Server {
  readonly machine: ShardMachine;
  readonly log: MemoryLogStore;
  private readonly sim: Simulation;
  private readonly clock: PhysicalClock;
  private readonly runner: EffectRunner;
  private readonly links = new Map<SessionId, WorkerLink>();
  private readonly requests = new Map<
    RequestId,
    { readonly ask: Ask; readonly command: Command; readonly end: ServerEnd; readonly send: (answer: Answer) => void }
  >();
  private readonly causes = new WeakMap<Reply, JournalEvent>();
  private readonly replays = new Map<string, ReplayEffect>();
  private readonly mailbox: (() => void)[] = [];
  private readonly stalled: Untimed[] = [];
  private nextRequest = 1;
  private nextSession = 1;
  private timer = 0;
  private isAwaitingRoom = false;
  private pausedUntilMs = 0;
  private isSaving = false;
  isDead = false;

  /** Rebuilds the shard from what the disks hold. */
  constructor(sim: Simulation) {
    this.sim = sim;
    const { states, disk, schedule, workload } = sim;
    this.log = new MemoryLogStore(disk, {
      soon: (run) => schedule.after(0, run),
      after: (ms, run) => schedule.after(ms, run),
      write: (bytes, done) => this.write(bytes, done),
    });
    this.machine = new ShardMachine({
      shard,
      term: asTerm(1),
      log: watched(this.log, sim.journal),
      hasher: bunHasher,
      states,
      orphanGraceMs: workload.orphanGraceMs,
      idleMs: workload.idleMs,
    });
    for (const record of this.log.replay(shard, asIndex(states.appliedIndex + 1))) this.machine.recover(record.index, record.body);
    this.clock = new PhysicalClock(Math.max(this.machine.clockMs, states.clockMs), sim.time);
    this.log.onDurable = () => this.onDurable();
    this.log.onPoison = () => sim.crashServer("diskBroken");
    this.runner = new EffectRunner({
      links: this.links,
      reply: (request, reply) => this.reply(request, reply),
      replay: (effect) => this.replay(effect),
      dropped: (session, handle) => void this.replays.delete(`${session}.${handle}`),
      armTimer: (atMs) => this.armTimer(atMs),
    });
  }

  /** Goes on where the life before ended. */
  start(): void {
    const effects = this.machine.finishRecovery(this.nowMs(), this.log.lastIndex(shard));
    this.sim.onRecovered(this.machine);
    this.run(effects);
  }

  get durableIndex(): Index {
    return this.log.durableIndex(shard);
  }

  nowMs(): number {
    const nowMs = this.clock.nowMs();
    this.sim.journal.givenMs = Math.max(this.sim.journal.givenMs, nowMs);
    return nowMs;
  }

  pause(ms: number): void {
    this.pausedUntilMs = Math.max(this.pausedUntilMs, this.sim.schedule.nowMs + ms);
    this.sim.schedule.at(this.pausedUntilMs, () => this.drain());
  }

  /** Ends this life. Nothing it would still have done happens. */
  die(isTorn: boolean): void {
    this.isDead = true;
    this.log.crash(isTorn ? this.sim.prng : undefined);
  }

  // Streams.

  onWorkerItem(end: ServerEnd, item: WorkerItem, link: PeerLink): void {
    this.whenAwake(() => {
      if (item.kind === "hello") return this.join(end, item.value, link);
      const { session } = end;
      if (session !== undefined) this.receive(session, item);
    });
  }

  onWorkerClosed(end: ServerEnd): void {
    this.whenAwake(() => {
      const { session } = end;
      if (session !== undefined && this.links.delete(session)) this.input({ kind: "worker-gone", session });
    });
  }

  onAsk(end: ServerEnd, ask: Ask, send: (answer: Answer) => void): void {
    this.whenAwake(() => {
      const command = ask.isUnnamed && ask.command.kind === "start" ? { ...ask.command, run: this.sim.madeUpName() as RunId } : ask.command;
      const isRead = command.kind === "query" || command.kind === "await-result";
      if (!isRead && !this.log.hasRoom())
        return send({ number: ask.number, reply: { kind: "rejected", rejection: { reject: "NO_SPACE", message: "full" } } });
      const request = asRequestId(this.nextRequest++);
      this.requests.set(request, { ask, command, end, send });
      end.requests.set(request, ask);
      this.input({ kind: "command", request, identity, command });
    });
  }

  onClientClosed(end: ServerEnd): void {
    this.whenAwake(() => {
      for (const request of [...end.requests.keys()]) {
        end.requests.delete(request);
        if (this.requests.delete(request)) this.input({ kind: "request-gone", request });
      }
    });
  }

  private join(end: ServerEnd, hello: Hello, link: PeerLink): void {
    const session = asSessionId(this.nextSession++);
    end.session = session;
    const worker: WorkerLink = {
      send: (item) => {
        const sent = fromBytes(decodeServerItem, toBytes(encodeServerItem, item));
        if (sent.kind === "task" && sent.value.token !== undefined)
          this.sim.tokens.check(this.replyContext(), sent.value.token, this.nowMs());
        link.send(sent);
      },
      close: (reason) => link.close(reason),
    };
    this.links.set(session, worker);
    this.input({ kind: "worker-joined", session, hello });
  }

  private receive(session: SessionId, item: WorkerItem): void {
    switch (item.kind) {
      case "activated":
        return this.input({ kind: "activated", session, message: item.value });
      case "taskDone":
        return this.input({ kind: "task-done", session, message: item.value });
      case "heartbeat":
        return this.input({ kind: "heartbeat", session, message: item.value });
      case "queryAnswer":
        return this.input({ kind: "query-answered", session, message: item.value });
      case "evicted":
        return this.input({ kind: "evicted", session, handle: item.value.handle });
      case "draining":
        return this.input({ kind: "draining", session });
      default:
        return;
    }
  }

  // Checkpoints.

  /** Captures, waits until the captured states are durable, saves, and calls `then`. One at a time. */
  checkpoint(limit: number, then = (): void => {}): void {
    if (this.isSaving || this.isDead) return;
    this.isSaving = true;
    const taken = this.machine.capture(limit);
    if (taken.durableIndex > this.durableIndex) this.log.kick(true);
    const save = (): void => {
      if (this.isDead) return;
      if (this.durableIndex < taken.durableIndex) return this.sim.schedule.after(1, save);
      this.isSaving = false;
      if (this.sim.strikes("checkpointFails")) return this.machine.putBack(taken);
      this.sim.states.save(taken, this.machine.clockMs);
      this.machine.saved();
      this.sim.note(() => `checkpoint of ${taken.rows.length} states, applied ${taken.appliedIndex}`);
      then();
    };
    this.sim.schedule.after(this.sim.prng.below(this.sim.prng.chance(0.3) ? 500 : 30), save);
  }

  evictIdle(): void {
    this.whenAwake(() => this.run(this.machine.evictIdle(this.nowMs())));
  }

  // Inputs and effects.

  private whenAwake(run: () => void): void {
    if (this.isDead) return;
    this.mailbox.push(run);
    this.drain();
  }

  private drain(): void {
    while (!this.isDead && this.pausedUntilMs <= this.sim.schedule.nowMs) {
      const run = this.mailbox.shift();
      if (run === undefined) return;
      run();
    }
  }

  private input(input: Untimed): void {
    if (this.isDead) return;
    const isDecision = input.kind === "activated" || input.kind === "task-done" || input.kind === "tick";
    if (isDecision && (this.stalled.length > 0 || !this.log.hasRoom())) {
      this.stalled.push(input);
      return this.awaitRoom();
    }
    this.step(input);
  }

  private awaitRoom(): void {
    if (this.isAwaitingRoom) return;
    this.isAwaitingRoom = true;
    this.sim.schedule.after(roomPollMs, () =>
      this.whenAwake(() => {
        this.isAwaitingRoom = false;
        while (this.stalled.length > 0 && this.log.hasRoom() && !this.isDead) this.step(this.stalled.shift() as Untimed);
        if (this.stalled.length > 0) this.awaitRoom();
      }),
    );
  }

  private step(input: Untimed): void {
    this.sim.note(() => describeInput(input));
    const effects = this.machine.step({ ...input, nowMs: this.nowMs() } as Input);
    for (const effect of effects) {
      if (effect.kind !== "reply") continue;
      const asked = this.requests.get(effect.request);
      const cause = asked === undefined ? undefined : causeOf(this.sim.journal, asked.command, effect.reply);
      if (cause !== undefined) this.causes.set(effect.reply, cause);
    }
    this.run(effects);
  }

  private run(effects: readonly Effect[]): void {
    for (const effect of effects) this.sim.note(() => `  → ${describeEffect(effect)}`);
    const before = this.durableIndex;
    const waits = this.runner.take(effects, before);
    if (waits) this.log.kick(true);
    else if (this.log.lastIndex(shard) > before) this.log.kick(false);
  }

  private replyContext() {
    return { journal: this.sim.journal, durableIndex: this.durableIndex, acked: this.sim.acked };
  }

  private onDurable(): void {
    this.sim.onDurable(this.durableIndex);
    if (this.sim.strikes("crashBeforeAck")) return this.sim.crashServer("crashBeforeAck");
    this.runner.release(this.durableIndex);
    this.sim.compareLive(this);
  }

  private write(_bytes: number, done: () => void): void {
    const { prng, schedule, workload } = this.sim;
    const ms = this.sim.strikes("slowFlush") ? 100 + prng.below(1500) : workload.flushMs * (0.5 + prng.fraction());
    if (this.sim.strikes("crashAtWrite")) schedule.after(ms * prng.fraction(), () => !this.isDead && this.sim.crashServer("crashAtWrite"));
    schedule.after(ms, () => this.whenAwake(done));
  }

  private reply(request: RequestId, reply: Reply): void {
    const asked = this.requests.get(request);
    if (asked === undefined) return;
    this.requests.delete(request);
    asked.end.requests.delete(request);
    checkReply(this.replyContext(), asked.command, reply, this.causes.get(reply));
    this.sim.onReply(asked.command, reply);
    asked.send({ number: asked.ask.number, reply });
  }

  private replay(effect: ReplayEffect): void {
    const key = `${effect.session}.${effect.handle}`;
    this.replays.set(key, effect);
    this.sim.schedule.after(this.sim.prng.below(5), () =>
      this.whenAwake(() => {
        if (this.replays.get(key) !== effect || !this.links.has(effect.session)) return;
        this.replays.delete(key);
        const { session, handle, activation, bundle, type, readOnly, partition } = effect;
        if (this.sim.strikes("replayFails")) return this.input({ kind: "replay-failed", session, handle, activation });
        const events = readHistory(this.sim.disk, shard, effect);
        this.links.get(session)?.send({
          kind: "activate",
          value: { handle, activation, fromStart: true, run: partition.slice(4), bundle, type, events, readOnly },
        });
      }),
    );
  }

  private armTimer(atMs: number): void {
    const timer = ++this.timer;
    const lateMs = this.sim.strikes("lateTick") ? this.sim.prng.below(1000) : 0;
    const waitMs = Math.min(Math.max(Math.ceil(atMs - this.nowMs()), 0), 60_000) + lateMs;
    this.sim.schedule.after(waitMs, () =>
      this.whenAwake(() => {
        if (timer === this.timer) this.input({ kind: "tick" });
      }),
    );
  }
}

function describeInput(input: Untimed): string {
  switch (input.kind) {
    case "command":
      return `command ${input.command.kind} ${input.command.run}${"name" in input.command ? ` ${input.command.name}` : ""} request ${input.request}`;
    case "activated": {
      const { handle, activation, status, commands } = input.message;
      return `activated ${input.session}.${handle}#${activation} status ${status} ${commands.map((c) => `${c.kind}:${c.op}`).join(" ")}`;
    }
    case "task-done": {
      const t = input.message.token;
      return `task-done ${t?.run}#${t?.generation}.${t?.op} ${t?.attempt}.${t?.delivery} ${input.message.failure?.type ?? "ok"}`;
    }
    case "evicted":
      return `evicted ${input.session}.${input.handle}`;
    case "worker-joined":
      return `worker-joined ${input.session} ${input.hello.workerId} holds ${input.hello.held.map((t) => `${t.run}#${t.generation}.${t.op} ${t.attempt}.${t.delivery}`).join(", ")}`;
    case "worker-gone":
    case "draining":
      return `${input.kind} ${input.session}`;
    default:
      return input.kind;
  }
}

function describeEffect(effect: Effect): string {
  const after = effect.after.until === "now" ? "" : ` after ${effect.after.index}`;
  switch (effect.kind) {
    case "activate":
      return `activate ${effect.session}.${effect.handle}#${effect.activation} ${effect.start?.run ?? ""} ${effect.events.length} events${after}`;
    case "replay":
      return `replay ${effect.session}.${effect.handle}#${effect.activation} ${effect.partition} [${effect.firstSeq}, ${effect.endSeq})${after}`;
    case "task":
      return `task ${effect.session} ${effect.token.run}#${effect.token.generation}.${effect.token.op} ${effect.token.attempt}.${effect.token.delivery} ${effect.name}${after}`;
    case "reply":
      return `reply ${effect.request} ${effect.reply.kind}${effect.reply.kind === "rejected" ? ` ${effect.reply.rejection.reject}` : ""}${after}`;
    case "drop":
      return `drop ${effect.session}.${effect.handle}${after}`;
    case "arm-timer":
      return `arm-timer ${effect.atMs}`;
    default:
      return `${effect.kind}${after}`;
  }
}
