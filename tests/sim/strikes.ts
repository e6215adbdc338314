/** Faults and changes, as they strike. */
import { type NodeId, placementShard } from "#core/base";
import type { ClusterView, PlacementCommand, PlacementReply } from "#core/placement";
import { askTransfer } from "../../node/cluster/planner-loop.ts";
import { newestManifest } from "./check/sealed.ts";
import { exponential } from "./network.ts";
import type { SimNode } from "./node.ts";
import type { Simulation } from "./simulation.ts";
import type { TimedFault } from "./workload.ts";

const operator = { issuer: "local", subject: "operator", verified: false, causeSeq: 0 };

export const one = <T>(sim: Simulation, of: readonly T[]): T | undefined => of[sim.prng.below(of.length)];

/** Strikes again and again while faults strike. */
export function repeat(sim: Simulation, fault: TimedFault, meanMs: number): void {
  sim.schedule.after(exponential(sim.prng, meanMs), () => {
    if (!sim.isFaulty) return;
    if (strike(sim, fault)) {
      sim.note(() => `fault ${fault}`);
      sim.count(fault);
    }
    repeat(sim, fault, meanMs);
  });
}

/** A node that lives; one that leads something, more often than not. */
function someNode(sim: Simulation): SimNode | undefined {
  const nodes = [...sim.nodes.values()];
  const leading = nodes.filter((node) => node.hosted.ledShards().length > 0);
  return one(sim, leading.length > 0 && sim.prng.chance(0.6) ? leading : nodes);
}

/** Whether it struck. */
function strike(sim: Simulation, fault: TimedFault): boolean {
  const { prng, schedule } = sim;
  const node = someNode(sim);
  switch (fault) {
    case "nodeCrash":
    case "powerLoss":
      if (node === undefined) return false;
      sim.crash(node, fault, fault === "powerLoss");
      return true;
    case "nodePause":
      if (node === undefined) return false;
      node.pause(100 + prng.below(prng.chance(0.8) ? 3000 : 30_000));
      return true;
    case "partition":
    case "asymmetricPartition":
      return part(sim, fault === "asymmetricPartition");
    case "diskLost":
      return loseDisk(sim, node);
    case "diskBroken":
      if (node === undefined) return false;
      node.machine.disk.failure = new Error("EIO");
      return true;
    case "diskFull":
      if (node === undefined) return false;
      node.machine.disk.isFull = true;
      schedule.after(prng.below(4000), () => {
        node.machine.disk.isFull = false;
      });
      return true;
    case "checkpointLost":
      return loseCheckpoint(sim, node);
    case "rollingRestart":
      rollingRestart(sim, [...sim.machines.keys()]);
      return true;
    case "wallJump":
      if (node === undefined) return false;
      // Nobody may have looked at the clocks for a while.
      sim.clockBound();
      node.machine.time.jumpedMs += one(sim, [-1000, 1000, -5000, 5000, 400, -400]) as number;
      return true;
    case "split":
    case "merge":
    case "move":
    case "transfer":
      return change(sim, fault);
    case "clientBreak":
      one(sim, sim.clients)?.disconnect();
      return true;
    case "workerBreak":
      one(sim, sim.workers)?.disconnect();
      return true;
    case "workerCrash":
      one(sim, sim.workers)?.crash();
      return true;
    case "workerStall":
      one(sim, sim.workers)?.stall(100 + prng.below(3000));
      return true;
    case "workerDrain":
      one(sim, sim.workers)?.drain();
      return true;
    case "guestEvict":
      one(sim, sim.workers)?.evict(false);
      return true;
    case "guestLoss":
      one(sim, sim.workers)?.evict(true);
      return true;
  }
}

/** Cuts the nodes into two parts, or one off; in one direction only where it is asymmetric. */
function part(sim: Simulation, isAsymmetric: boolean): boolean {
  const { prng, wires, schedule } = sim;
  const ids = [...sim.machines.keys()];
  if (ids.length < 2) return false;
  const alone = prng.chance(0.5) ? (someNode(sim)?.id ?? ids[0]) : undefined;
  const side = new Set(ids.filter((id) => (alone === undefined ? prng.chance(0.5) : id === alone)));
  for (const a of ids)
    for (const b of ids) {
      if (side.has(a) === side.has(b)) continue;
      if (!isAsymmetric || side.has(a)) wires.cut(a, b);
    }
  schedule.after(500 + exponential(prng, 3000), () => wires.heal());
  return true;
}

/** Every replica of the node must be one too many: nobody may be missing anywhere but for this one. */
function loseDisk(sim: Simulation, node: SimNode | undefined): boolean {
  const view = sim.view();
  if (node === undefined || view === undefined || !isSafeToLose(sim, view, node.id)) return false;
  const place = node.machine.name.split("/")[0] as string;
  sim.lose(node);
  const machine = sim.newMachine(place);
  // It comes back empty, so it is another node: it asks to join, until it is let in.
  const join = (): void => {
    askPlacement(sim, { kind: "join", info: machine.info() }, (reply) => {
      if (reply?.kind === "joined") {
        if (!sim.nodes.has(reply.node) && !sim.machines.has(reply.node)) sim.startNode(reply.node, machine);
      } else sim.schedule.after(500, join);
    });
  };
  sim.schedule.after(100 + sim.prng.below(3000), join);
  return true;
}

/** All groups have three voters or more, all of which live, follow, and are where they are wanted. */
function isSafeToLose(sim: Simulation, view: ClusterView, lost: NodeId): boolean {
  for (const id of sim.machines.keys()) if (!sim.nodes.has(id)) return false;
  for (const { standing, node } of view.nodes.values()) if (standing !== "removed" && !sim.machines.has(node)) return false;
  for (const entry of [view.placement, ...view.shards.values()]) {
    if (entry === undefined) return false;
    if (!entry.voters.includes(lost) && entry.learners.length + entry.outgoing.length === 0) continue;
    if (entry.voters.length < 3 || entry.outgoing.length > 0 || entry.learners.length > 0) return false;
    for (const voter of entry.voters) {
      const group = [...(sim.nodes.get(voter)?.replicas.everyGroup() ?? [])].find((each) => each.shard === entry.shard);
      if (group === undefined || group.commitIndex < sim.journal.lastIndex(entry.shard)) return false;
    }
  }
  return true;
}

/**
 * The checkpoint is found damaged, or of another version, when the node starts: it is built again
 * from the log, or fetched from the leader or from object storage. Where nobody else has the states,
 * they must be in one of those.
 */
function loseCheckpoint(sim: Simulation, node: SimNode | undefined): boolean {
  const view = sim.view();
  if (node === undefined || view === undefined) return false;
  if ((sim.machines.size > 1 && !isSafeToLose(sim, view, node.id)) || !canComeBack(sim, node)) return false;
  sim.crash(node, "checkpointLost");
  node.machine.checkpoints.wipe();
  return true;
}

/** The log holds every shard of the node from its first entry on, or object storage has states from which it leads on. */
function canComeBack(sim: Simulation, node: SimNode): boolean {
  for (const { shard, replica } of node.replicas.all()) {
    const base = node.log.base(shard).index;
    if (base === 0 && replica.machine.changedIndex === 0) continue;
    const states = newestManifest(sim, shard)?.checkpoint?.appliedIndex ?? 0;
    if (states < Math.max(base, replica.machine.changedIndex)) return false;
  }
  return true;
}

/** The log holds every shard of the node from its first entry on. */
function hasWholeLog(node: SimNode): boolean {
  for (const { shard, replica } of node.replicas.all())
    if (node.log.base(shard).index > 0 || replica.machine.changedIndex > 0) return false;
  return true;
}

/** One node after the other is stopped and started again: one that a new version takes over does not read the old checkpoint. */
function rollingRestart(sim: Simulation, ids: readonly NodeId[]): void {
  const [id, ...rest] = ids;
  if (id === undefined || !sim.isFaulty) return;
  const node = sim.nodes.get(id);
  const view = sim.view();
  if (node !== undefined) {
    const isUpgrade = view !== undefined && hasWholeLog(node) && isSafeToLose(sim, view, id) && sim.prng.chance(0.3);
    sim.crash(node, "rollingRestart");
    if (isUpgrade) node.machine.checkpoints.wipe();
  }
  sim.schedule.after(1500 + sim.prng.below(2500), () => rollingRestart(sim, rest));
}

function change(sim: Simulation, kind: "split" | "merge" | "move" | "transfer"): boolean {
  const { prng } = sim;
  const view = sim.view();
  const entry = view === undefined ? undefined : one(sim, view.ranges);
  if (view === undefined || entry === undefined) return false;
  const { shard, range, wanted, lease } = entry;
  switch (kind) {
    case "split":
      if (view.shards.size >= 6) return false;
      askPlacement(sim, { kind: "want-split", shard, at: range.first + 1 + Math.floor(prng.fraction() * (range.last - range.first)) });
      return true;
    case "merge": {
      const right = view.ranges[view.ranges.indexOf(entry) + 1];
      if (right === undefined) return false;
      askPlacement(sim, { kind: "want-merge", left: shard, right: right.shard });
      return true;
    }
    case "move": {
      const moved = prng.chance(0.2) ? placementShard : shard;
      const members = [...view.nodes.values()].filter((each) => each.standing === "member").map((each) => each.node);
      const count = wanted.length === 1 || prng.chance(0.15) ? (prng.chance(0.5) ? 1 : 3) : wanted.length;
      if (members.length < count) return false;
      const nodes = shuffled(sim, members).slice(0, count);
      askPlacement(sim, { kind: "want-replicas", shard: moved, nodes });
      return true;
    }
    case "transfer": {
      const moved = prng.chance(0.2) ? placementShard : shard;
      const from = moved === placementShard ? sim.placementLeader()?.id : lease?.node;
      const to = one(sim, moved === placementShard ? (view.placement?.voters ?? []) : entry.voters);
      const asker = one(sim, [...sim.nodes.values()]);
      if (from === undefined || to === undefined || asker === undefined) return false;
      asker.take(() => void askTransfer(asker.placement, { shard: moved, from, to }).catch(() => {}));
      return true;
    }
  }
}

function shuffled<T>(sim: Simulation, of: readonly T[]): T[] {
  const rest = [...of];
  const out: T[] = [];
  while (rest.length > 0) out.push(rest.splice(sim.prng.below(rest.length), 1)[0] as T);
  return out;
}

/** Asks placement through some node. `done` gets undefined where that node got no answer. */
export function askPlacement(
  sim: Simulation,
  command: PlacementCommand,
  done: (reply: PlacementReply | undefined) => void = () => {},
): void {
  const node = one(sim, [...sim.nodes.values()]);
  if (node === undefined) return sim.schedule.after(100, () => askPlacement(sim, command, done));
  let isOver = false;
  const finish = (reply: PlacementReply | undefined): void => {
    if (isOver) return;
    isOver = true;
    sim.note(() => `placement answers ${command.kind}: ${JSON.stringify(reply)}`);
    done(reply);
  };
  sim.note(() => `asks placement for ${JSON.stringify(command)}`);
  // A node that dies answers nothing.
  sim.schedule.after(5000, () => finish(undefined));
  node.take(() => void node.placement.command(operator, command, 4000).then(finish, () => finish(undefined)));
}
