/**
 * A full replay that is always there: machines that follow the committed logs from their first
 * entry on, across splits and merges, and never saw a checkpoint of a node.
 */
import { asIndex, asShardId, inRange, type Partition, type ShardId } from "#core/base";
import { bornHeader, changeOf, encodeHeader, type ShardBirth, type ShardMachine } from "#core/shard";
import { makeShard, RecordLog, StateTable } from "../../shard-maker.ts";
import type { CommittedEntry, ShardJournal } from "../journal.ts";

export class Reference {
  private readonly table = new StateTable();
  private readonly machines = new Map<ShardId, ShardMachine>();

  constructor() {
    this.machines.set(asShardId(1), makeShard({ shard: asShardId(1), log: new RecordLog(), states: this.table }));
  }

  take({ shard }: ShardJournal, { index, kind, data }: CommittedEntry): void {
    const machine = this.machines.get(shard);
    if (machine === undefined) return;
    if (kind === "config" || data.length === 0) return machine.skip(index);
    const change = changeOf(data);
    // What is taken in is saved first, as on every replica.
    if (change?.kind === "absorbed") this.retire(asShardId(change.value.shard));
    machine.recover(index, data);
    for (const { change: made, child } of machine.takeChanges())
      if (made.kind === "split" && child !== undefined) this.give(shard, asShardId(made.value.child), child);
  }

  /** States of all partitions of a shard, encoded. */
  statesOf(shard: ShardId): Map<string, Uint8Array> {
    const machine = this.machines.get(shard);
    if (machine === undefined) return new Map();
    const states = new Map<string, Uint8Array>(machine.states());
    const range = machine.header();
    for (const [partition, row] of this.table.rows)
      if (inRange(range, row.key) && !states.has(partition))
        states.set(partition, machine.canonicalState(partition as Partition, row.key, row));
    return states;
  }

  private give(parent: ShardId, child: ShardId, birth: ShardBirth): void {
    this.table.checkpoint(parent, this.machines.get(parent) as ShardMachine, Number.MAX_SAFE_INTEGER, 2);
    const saved = { appliedIndex: asIndex(1), header: encodeHeader(bornHeader(birth)), headerIndex: 1, clockMs: birth.clockMs };
    this.machines.set(child, makeShard({ shard: child, log: new RecordLog(1), states: this.table, saved }));
  }

  private retire(shard: ShardId): void {
    const machine = this.machines.get(shard);
    if (machine === undefined) return;
    this.table.checkpoint(shard, machine, Number.MAX_SAFE_INTEGER, 2);
    this.machines.delete(shard);
  }
}
