/**
 * A worker under the simulator: holds a stream to every node, executes activities, and fails in
 * every way a worker can. It keeps to the contract of the real one: results are kept until they
 * are old, another delivery of an attempt gets its result, and a task under a lower epoch than one
 * that was seen of its shard is refused.
 */
import type { NodeId } from "#core/base";
import type { ServerItem, Task, TaskDoneInit, TaskToken, WorkerItemInit } from "#proto";
import { EpochFence } from "../../worker/activity/epoch-fence.ts";
import type { Plan } from "./program.ts";
import type { Simulation } from "./simulation.ts";
import { WorkerLink } from "./worker-link.ts";

interface Execution {
  token: TaskToken;
  isOver: boolean;
}

interface Arrival {
  readonly link: WorkerLink;
  readonly item: ServerItem;
}

const text = new TextEncoder();
const resultKeptMs = 15_000;
const attemptOf = (token: TaskToken) => `${token.run}/${token.generation}.${token.op}.${token.attempt}`;
const pick = ({ run, generation, op, attempt, delivery, epoch }: TaskToken) => ({ run, generation, op, attempt, delivery, epoch });

export class SimulatedWorker {
  readonly name: string;
  readonly activities: readonly string[];
  private readonly sim: Simulation;
  private readonly links = new Map<NodeId, WorkerLink>();
  private readonly dialing = new Set<NodeId>();
  private readonly executing = new Map<string, Execution>();
  private readonly kept = new Map<string, { done: TaskDoneInit; sentMs: number | undefined }>();
  private readonly fence = new EpochFence();
  private stalledUntilMs = 0;
  private readonly mailbox: Arrival[] = [];
  private isDown = false;

  constructor(sim: Simulation, name: string, activities: readonly string[]) {
    this.sim = sim;
    this.name = name;
    this.activities = activities;
  }

  /** Connects to every node that it has no stream to. */
  connect(): void {
    if (this.isDown) return;
    for (const node of this.sim.nodes.keys()) if (!this.links.has(node)) this.dial(node, this.sim.prng.below(100));
  }

  private dial(node: NodeId, ms: number): void {
    if (this.dialing.has(node)) return;
    this.dialing.add(node);
    this.sim.schedule.after(ms, () => {
      this.dialing.delete(node);
      if (!this.isDown && !this.links.has(node)) this.open(node);
    });
  }

  private open(node: NodeId): void {
    this.forgetOld();
    const { sim } = this;
    const stream = sim.openWorkerStream(
      node,
      (item) => this.onItem(link, item),
      () => this.onClosed(node, link),
    );
    // A node that was replaced is gone for good.
    if (stream === undefined) return void (sim.nodes.has(node) && this.dial(node, 50 + sim.prng.below(300)));
    const link = new WorkerLink(sim, stream);
    this.links.set(node, link);
    link.send({
      kind: "hello",
      value: {
        workerId: this.name,
        namespace: "",
        modes: ["v8"],
        activities: [...this.activities],
        activitySlots: sim.workload.activitySlots,
        runSlots: sim.workload.runSlots,
        version: "sim",
        clusterId: "sim",
        held: this.held(),
      },
    });
    this.resend(link);
  }

  private resend(link: WorkerLink): void {
    for (const each of this.kept.values()) {
      each.sentMs = this.sim.schedule.nowMs;
      link.send({ kind: "taskDone", value: each.done });
    }
  }

  /** Streams break; activities go on. */
  disconnect(): void {
    const { prng } = this.sim;
    for (const link of this.links.values()) if (prng.chance(0.6)) link.break(prng.below(400), prng.below(200));
  }

  /** The process dies and comes back. */
  crash(): void {
    const { prng, schedule } = this.sim;
    for (const link of this.links.values()) {
      link.break(prng.below(400), 0);
      link.end();
    }
    this.links.clear();
    this.isDown = true;
    for (const execution of this.executing.values()) execution.isOver = true;
    this.executing.clear();
    this.kept.clear();
    this.mailbox.length = 0;
    schedule.after(50 + prng.below(2000), () => {
      this.isDown = false;
      this.connect();
    });
  }

  stall(ms: number): void {
    this.stalledUntilMs = Math.max(this.stalledUntilMs, this.sim.schedule.nowMs + ms);
  }

  drain(): void {
    for (const link of this.links.values()) link.send({ kind: "draining", value: {} });
    this.sim.schedule.after(500 + this.sim.prng.below(1500), () => {
      for (const link of this.links.values()) link.break(this.sim.prng.below(400), this.sim.prng.below(200));
    });
  }

  evict(isSilent: boolean): void {
    for (const link of this.links.values()) if (this.sim.prng.chance(0.5)) link.evict(isSilent);
  }

  private held() {
    return [...[...this.executing.values()].map((e) => e.token), ...[...this.kept.values()].map((k) => k.done.token as TaskToken)].map(
      pick,
    );
  }

  private onClosed(node: NodeId, link: WorkerLink): void {
    if (this.links.get(node) !== link) return;
    this.links.delete(node);
    link.end();
    // What was sent there may not have arrived.
    for (const each of this.kept.values()) if (this.say({ kind: "taskDone", value: each.done })) each.sentMs = this.sim.schedule.nowMs;
    const { prng, isFaulty } = this.sim;
    if (!this.isDown) this.dial(node, prng.below(isFaulty && prng.chance(0.3) ? 4000 : 300));
  }

  /** To whom the results go: where the task came from if that stream still is, else to any. */
  private say(item: WorkerItemInit, link?: WorkerLink): boolean {
    const through = link !== undefined && !link.isBroken ? link : [...this.links.values()].find((each) => !each.isBroken);
    through?.send(item);
    return through !== undefined;
  }

  private onItem(link: WorkerLink, item: ServerItem): void {
    if (link.isOver) return;
    this.mailbox.push({ link, item });
    if (this.stalledUntilMs > this.sim.schedule.nowMs) this.sim.schedule.at(this.stalledUntilMs, () => this.work());
    else this.work();
  }

  private work(): void {
    if (this.stalledUntilMs > this.sim.schedule.nowMs) return this.sim.schedule.at(this.stalledUntilMs, () => this.work());
    for (let next = this.mailbox.shift(); next !== undefined; next = this.mailbox.shift()) if (!next.link.isOver) this.take(next);
  }

  private take({ link, item }: Arrival): void {
    switch (item.kind) {
      case "activate":
        return link.activate(item.value);
      case "task":
        return this.execute(item.value, link);
      case "cancelTask":
        return this.cancelTask(item.value.token);
      case "query":
        return link.query(item.value);
      case "drop":
        return link.drop(item.value.handle);
      case "recall":
        link.send({ kind: "held", value: { shard: item.value.shard, token: this.held() } });
        return this.resend(link);
      default:
        return;
    }
  }

  // Activities.

  private execute(task: Task, link: WorkerLink): void {
    const { token } = task;
    if (token === undefined) return;
    if (this.fence.refuses(task.shard, token.epoch) !== undefined) return this.sim.count("staleTask");
    this.forgetOld();
    const key = attemptOf(token);
    const known = this.kept.get(key);
    if (known !== undefined) {
      known.done = marked(known.done, token);
      return link.send({ kind: "taskDone", value: known.done });
    }
    const running = this.executing.get(key);
    if (running !== undefined) {
      running.token = token;
      return;
    }
    const execution: Execution = { token, isOver: false };
    this.executing.set(key, execution);
    this.run(execution, link, JSON.parse(new TextDecoder().decode(task.input?.data)) as Plan);
  }

  private run(execution: Execution, link: WorkerLink, plan: Plan): void {
    const { schedule, prng } = this.sim;
    const { attempt } = execution.token;
    if (plan.beatMs > 0) this.beat(execution, link, plan.beatMs, 1);
    if (attempt <= plan.hangs) return;
    schedule.after(plan.ms * (0.5 + prng.fraction() / 2), () => {
      if (execution.isOver) return;
      const isFailure = attempt <= plan.hangs + plan.fails;
      const failure = { type: plan.fails % 2 === 1 ? "Picky" : "Flaky", message: `attempt ${attempt}`, nonRetryable: plan.isFatal };
      this.finish(execution, link, isFailure ? { failure } : {});
    });
  }

  private beat(execution: Execution, link: WorkerLink, everyMs: number, count: number): void {
    this.sim.schedule.after(everyMs, () => {
      if (execution.isOver) return;
      // An execution that hangs does not report either, after a while.
      if (count > 3) return;
      this.say({ kind: "heartbeat", value: { token: execution.token, details: { data: text.encode(`${count}`) } } }, link);
      this.beat(execution, link, everyMs, count + 1);
    });
  }

  private finish(execution: Execution, link: WorkerLink, outcome: TaskDoneInit): void {
    execution.isOver = true;
    const key = attemptOf(execution.token);
    this.executing.delete(key);
    const done = marked(outcome, execution.token);
    const isSent = this.say({ kind: "taskDone", value: done }, link);
    this.kept.set(key, { done, sentMs: isSent ? this.sim.schedule.nowMs : undefined });
    if (this.sim.strikes("resultAgain")) this.say({ kind: "taskDone", value: done }, link);
  }

  private cancelTask(token: TaskToken | undefined): void {
    const key = token === undefined ? "" : attemptOf(token);
    const execution = this.executing.get(key);
    // What a later leader offered, an earlier one does not withdraw.
    if (execution === undefined || execution.token.epoch > (token?.epoch ?? 0)) return;
    execution.isOver = true;
    this.executing.delete(key);
  }

  private forgetOld(): void {
    for (const [key, { sentMs }] of this.kept)
      if (sentMs !== undefined && this.sim.schedule.nowMs - sentMs > resultKeptMs) this.kept.delete(key);
  }
}

/** The outcome as a result of this delivery: what commits says which one it was. */
function marked(outcome: TaskDoneInit, token: TaskToken): TaskDoneInit {
  const data = text.encode(JSON.stringify({ attempt: token.attempt, delivery: token.delivery }));
  const { failure } = outcome;
  return failure === undefined
    ? { token: pick(token), result: { data } }
    : { token: pick(token), failure: { ...failure, details: { data } } };
}
