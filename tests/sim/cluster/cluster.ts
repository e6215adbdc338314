/** Nodes and the wires between them, in virtual time. */
import { asNodeId, type NodeId, type Partition, Prng, type RunId, runPartition } from "#core/base";
import { type PlacementCommand, type PlacementReply, shardAt } from "#core/placement";
import type { Message } from "#core/raft";
import { keyOf } from "../../../node/cluster/shard-map.ts";
import type { ShardHost } from "../../../node/shard/shard-host.ts";
import { Schedule } from "../schedule.ts";
import { Machine, SimNode } from "./node.ts";

export class Cluster {
  readonly schedule = new Schedule();
  readonly prng: Prng;
  readonly nodes = new Map<NodeId, SimNode>();
  readonly machines = new Map<NodeId, Machine>();

  constructor(seed: number) {
    this.prng = new Prng(seed);
  }

  add(number: number, isFirst = false): SimNode {
    const id = asNodeId(number);
    const machine = this.machines.get(id) ?? new Machine();
    this.machines.set(id, machine);
    const node = new SimNode(id, machine, this, isFirst);
    this.nodes.set(id, node);
    return node;
  }

  send(message: Message): void {
    const copy = structuredClone(message);
    this.deliver(() => this.nodes.get(message.to)?.receive(copy));
  }

  /** What goes over a wire arrives a little later. */
  deliver(arrive: () => void): void {
    this.schedule.after(0.1 + this.prng.fraction() * 0.4, arrive);
  }

  /** Lets time pass. */
  run(ms: number): void {
    const end = this.schedule.nowMs + ms;
    this.runUntil(() => this.schedule.nowMs >= end, ms + 1000, "time passes");
  }

  placementLeader(): SimNode | undefined {
    return [...this.nodes.values()].find((node) => !node.isDead && node.placement.leads());
  }

  /** Asks placement and runs until it answered. */
  ask(command: PlacementCommand): PlacementReply {
    let reply: PlacementReply | undefined;
    const identity = { issuer: "local", subject: "sim", verified: false, causeSeq: 0 };
    this.placementLeader()?.placement.command(identity, command, (answered) => {
      reply = answered;
    });
    this.runUntil(() => reply !== undefined, 5000, `an answer to ${command.kind}`);
    if (reply?.kind === "rejected") throw new Error(`${command.kind}: ${reply.rejection.message}`);
    return reply as PlacementReply;
  }

  /** The open port of the shard that owns the partition, wherever it is. */
  portOf(partition: Partition): ShardHost | undefined {
    const view = this.placementLeader()?.placement.view();
    const entry = view && shardAt(view, keyOf(partition));
    for (const node of this.nodes.values()) {
      const host = node.isDead || entry === undefined ? undefined : node.led.get(entry.shard);
      if (host !== undefined) return host;
    }
    return undefined;
  }

  describe(run: string) {
    return this.portOf(runPartition(run as RunId))?.describe(runPartition(run as RunId));
  }

  /** Nothing is uncommitted or unapplied anywhere. */
  isQuiet(): boolean {
    for (const node of this.nodes.values())
      for (const { group, replica } of node.replicas.all())
        if (group.commitIndex !== group.lastIndex || replica.appliedIndex !== group.commitIndex) return false;
    const ends = new Map<number, number>();
    for (const node of this.nodes.values())
      for (const { group, shard } of node.replicas.all()) {
        if ((ends.get(shard) ?? group.lastIndex) !== group.lastIndex) return false;
        ends.set(shard, group.lastIndex);
      }
    return true;
  }

  /** All replicas of a shard have the same states, byte for byte. */
  expectReplicasEqual(): void {
    const seen = new Map<number, Map<string, string>>();
    for (const node of this.nodes.values()) {
      for (const { shard, replica } of node.replicas.all()) {
        const states = new Map<string, string>(
          [...replica.machine.states()].map(([partition, state]) => [partition, Buffer.from(state).toString("hex")]),
        );
        const before = seen.get(shard) ?? states;
        seen.set(shard, before);
        for (const [partition, state] of states)
          if (before.has(partition) && before.get(partition) !== state)
            throw new Error(`shard ${shard}: ${partition} differs on node ${node.id}`);
      }
    }
  }

  runUntil(isReached: () => boolean, ms: number, what: string): void {
    const end = this.schedule.nowMs + ms;
    while (!isReached()) {
      if (this.schedule.nowMs > end || !this.schedule.step()) throw new Error(`not reached within ${ms} ms: ${what}`);
    }
  }
}
