/** A placement machine on a log in memory, and commands in short. */
import { asIndex, asNodeId, asRequestId, asShardId, asTerm, type Index, type NodeId, type Rejection, type ShardId } from "#core/base";
import { type Identity, type NodeInfo, Writer } from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import type { PlacementCommand, PlacementEffect, PlacementReply } from "./command.ts";
import { PlacementMachine } from "./machine.ts";
import type { ReplicaSet } from "./shard-entry.ts";

export const identity: Identity = { issuer: "local", subject: "ada", verified: false, causeSeq: 0 };

/** Keeps what was appended, and scribbles over the writer afterwards as a log that moves on does. */
export class Records {
  readonly records: { index: Index; term: number; body: Uint8Array }[] = [];
  private readonly writer = new Writer();
  private index = asIndex(0);
  private term = 0;

  begin(_shard: unknown, index: Index, term: number): Writer {
    this.index = index;
    this.term = term;
    this.writer.at = 0;
    return this.writer;
  }

  end(): void {
    this.records.push({ index: this.index, term: this.term, body: this.writer.bytes.slice(0, this.writer.at) });
    this.writer.bytes.fill(0xee);
  }
}

export function info(number: number, fields: Partial<NodeInfo> = {}): NodeInfo {
  const host = `10.0.0.${number}`;
  const own = {
    peer: `${host}:7072`,
    grpc: `${host}:7070`,
    http: `${host}:7071`,
    zone: "",
    version: "0.2.0",
    protocol: 1,
    disk: `disk-${number}`,
  };
  return { ...own, ...fields };
}

export const set = (voters: readonly number[], configIndex = 0, more: Partial<ReplicaSet> = {}): ReplicaSet => ({
  voters: voters.map(asNodeId),
  outgoing: [],
  learners: [],
  configIndex: asIndex(configIndex),
  ...more,
});

/** A leader with its log. */
export class Placement {
  readonly log = new Records();
  readonly machine: PlacementMachine;
  nowMs = 1000;
  private lastConfig = 0;

  constructor(machine?: PlacementMachine) {
    this.machine = machine ?? new PlacementMachine({ log: this.log, hasher: bunHasher });
    if (machine === undefined) this.machine.lead({ term: asTerm(1), nowMs: this.nowMs });
  }

  /** With a cluster of `nodes` members, numbered from 1, of which the first holds everything. */
  static of(nodes: number, options: { shards?: number; zone?: (node: number) => string } = {}): Placement {
    const placement = new Placement();
    const zone = options.zone ?? (() => "");
    placement.do({ kind: "bootstrap", clusterId: "c1", info: info(1, { zone: zone(1) }), shards: options.shards ?? 1 });
    for (let i = 2; i <= nodes; i++) placement.do({ kind: "join", info: info(i, { zone: zone(i) }) });
    return placement;
  }

  step(command: PlacementCommand): PlacementEffect {
    const [effect] = this.machine.step({ nowMs: this.nowMs, request: asRequestId(1), identity, command });
    return effect as PlacementEffect;
  }

  do(command: PlacementCommand): PlacementReply {
    return this.step(command).reply;
  }

  /** The refusal of a command, which appends nothing. */
  refusal(command: PlacementCommand): Rejection {
    const before = this.machine.lastIndex;
    const reply = this.do(command);
    if (reply.kind !== "rejected") throw new Error(`Cannot refuse ${command.kind}: it was answered with ${reply.kind}`);
    if (this.machine.lastIndex !== before) throw new Error(`Cannot refuse ${command.kind}: something was appended`);
    return reply.rejection;
  }

  lease(shard: number, node: number, term: number, born?: { parent: number; at: number; replicas?: ReplicaSet }): PlacementReply {
    return this.do(lease(shard, node, term, born));
  }

  /** The shard gets these members, as if its leader had moved them. */
  place(shard: number, voters: readonly number[]): void {
    const id = asShardId(shard);
    this.do({ kind: "want-replicas", shard: id, nodes: voters.map(asNodeId) });
    this.do({ kind: "replicas-changed", shard: id, replicas: set(voters, ++this.lastConfig) });
  }

  get view() {
    return this.machine.view();
  }

  shard(number: number) {
    const found = number === 0 ? this.view.placement : this.view.shards.get(asShardId(number));
    if (found === undefined) throw new Error(`Cannot find shard ${number}`);
    return found;
  }

  /** A follower that was given the same records. */
  follower(): PlacementMachine {
    const machine = new PlacementMachine({ log: new Records(), hasher: bunHasher });
    for (const record of this.log.records) machine.recover(record.index, record.body);
    return machine;
  }
}

export function lease(
  shard: number,
  node: number,
  term: number,
  born?: { parent: number; at: number; replicas?: ReplicaSet },
): PlacementCommand {
  const command = { kind: "lease", shard: asShardId(shard), node: asNodeId(node), term: asTerm(term) } as const;
  return born === undefined ? command : { ...command, born: { ...born, parent: asShardId(born.parent) } };
}

export const pair = (left: number, right: number): { left: ShardId; right: ShardId } => ({
  left: asShardId(left),
  right: asShardId(right),
});

export const ids = (nodes: readonly NodeId[] | undefined): number[] => [...(nodes ?? [])];
