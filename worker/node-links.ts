/**
 * The worker's sessions: one for each live node of its cluster, found through the addresses that
 * it was given.
 *
 * The first session goes to whichever of those answers; the welcome names the nodes there are. A
 * node that is no member any more keeps its stream as long as that lasts. Where no node can be
 * reached, the given addresses are tried again beside those that were learned.
 */
import type { Nodes, Welcome, WorkerItemInit } from "#proto";
import type { Road } from "./activity/activity-host.ts";
import { type Connect, Session, type SessionParts } from "./session.ts";
import { isUneven, type Room, shares } from "./shares.ts";

export interface NodeLinksParts extends Pick<SessionParts, "connectLocal" | "openExecutor" | "activities" | "onLog" | "random"> {
  /** The way to some node. */
  readonly connect: Connect;
  /** It leads to one node, as within a process: that node is reached by no other way. */
  readonly isFixed: boolean;
  /** The way to a node by the address that the cluster names. */
  readonly connectTo: (address: string) => Connect;
  /** All of the hello but what is known here. */
  readonly hello: () => Omit<ReturnType<SessionParts["hello"]>, "clusterId">;
  /** What the whole cluster may use of the worker. */
  readonly room: Room;
  /** How long `close` waits for activities to end. */
  readonly graceMs: number;
  /** Told which nodes there are now. */
  readonly onNodes?: ((addresses: readonly string[]) => void) | undefined;
}

/** How long nodes may take to end the last streams. */
const partingMsMax = 1_000;
/** How often the room is divided anew where nodes use it unevenly. */
const balanceMs = 1_000;

export class NodeLinks implements Road {
  private readonly parts: NodeLinksParts;
  private readonly sessions = new Set<Session>();
  /** The session that uses the given way. */
  private finder: Session | undefined;
  private listed: ReadonlySet<string> = new Set();
  private listVersion = 0;
  private clusterId = "";
  private balancing: ReturnType<typeof setInterval> | undefined;
  /** Executions that the joined nodes did not give, as of the last division. */
  private orphans = 0;
  private closing: Promise<void> | undefined;
  private isLeaving = false;
  private wake: (() => void) | undefined;
  /** Resolves when a node welcomed the worker for the first time, or it was closed before. */
  readonly ready: Promise<void>;
  private onReady!: () => void;

  constructor(parts: NodeLinksParts) {
    this.parts = parts;
    this.ready = new Promise((done) => {
      this.onReady = done;
    });
    this.find();
  }

  get isJoined(): boolean {
    return this.joined().length > 0;
  }

  /** To any node; false where none is joined. */
  readonly send = (item: WorkerItemInit): boolean => {
    for (const session of this.sessions) if (session.send(item)) return true;
    return false;
  };

  /** Begins new streams, whose hellos say what the worker is now. What is executing goes on. */
  renew(): void {
    for (const session of this.sessions) session.renew();
  }

  /** Takes nothing new, waits for activities up to the grace time, delivers their results, and leaves. */
  close(): Promise<void> {
    this.closing ??= this.leave();
    return this.closing;
  }

  private joined(): Session[] {
    return [...this.sessions].filter((session) => session.isJoined);
  }

  private find(): void {
    this.finder = this.open(this.parts.connect, "");
    this.finder.dial();
  }

  private open(connect: Connect, address: string): Session {
    const { connectLocal, openExecutor, activities, onLog, random } = this.parts;
    const session = new Session(
      {
        connect,
        connectLocal,
        openExecutor,
        activities,
        onLog,
        random,
        room: this.roomOfNext(),
        hello: () => ({ ...this.parts.hello(), clusterId: this.clusterId }),
        admit: (of, welcome) => this.admit(of, welcome),
        onJoined: (of, welcome) => this.onJoined(of, welcome),
        onNodes: (nodes) => this.onNodes(nodes),
        onOver: (of, wasJoined) => this.onOver(of, wasJoined),
      },
      address,
    );
    this.sessions.add(session);
    return session;
  }

  /** Results belong to the cluster that asked for them, and each node is spoken to once. */
  private admit(session: Session, welcome: Welcome): string | undefined {
    if (this.clusterId !== "" && welcome.clusterId !== this.clusterId)
      return (
        `The server belongs to cluster ${JSON.stringify(welcome.clusterId)}, this worker to ${JSON.stringify(this.clusterId)}. ` +
        "Check the address, or restart the worker if the cluster was set up anew"
      );
    const { address } = welcome;
    if (address === "" || address === session.address) return undefined;
    const other = [...this.sessions].find((each) => each !== session && each.address === address && each.isJoined);
    return other === undefined ? undefined : `It is the node at ${address}, which the worker is connected to`;
  }

  private onJoined(session: Session, welcome: Welcome): void {
    this.clusterId = welcome.clusterId;
    if (welcome.address !== "") this.adopt(session, welcome.address);
    if (welcome.nodes !== undefined) this.onNodes(welcome.nodes);
    if (this.closing !== undefined) session.send({ kind: "draining", value: {} });
    // Others are there now: the given addresses need not be tried.
    if (this.finder !== session && this.finder !== undefined && !this.finder.isJoined) this.discard(this.finder);
    this.divide();
    this.onReady();
    this.wake?.();
  }

  /** The session is that of the node at `address`; another one that tries to reach it is not needed. */
  private adopt(session: Session, address: string): void {
    for (const other of this.sessions) if (other !== session && other.address === address) this.discard(other);
    session.address = address;
  }

  private onNodes(nodes: Nodes): void {
    // A node that was cut off may tell an old list.
    if (nodes.address.length === 0 || (nodes.version <= this.listVersion && this.listed.size > 0)) return;
    this.listVersion = nodes.version;
    this.listed = new Set(nodes.address);
    this.parts.onNodes?.(nodes.address);
    if (this.isLeaving) return;
    for (const session of this.sessions) {
      const isUnlisted = session.address !== "" && !this.listed.has(session.address);
      if (isUnlisted && !session.isJoined && session !== this.finder) this.discard(session);
    }
    const known = new Set([...this.sessions].map((session) => session.address));
    for (const address of this.listed) if (!known.has(address)) this.open(this.parts.connectTo(address), address).dial();
    this.divide();
  }

  /** Whether the session goes on to its next stream. */
  private onOver(session: Session, wasJoined: boolean): boolean {
    this.wake?.();
    if (wasJoined) this.parts.activities.resendLost(session);
    if (this.isLeaving || !this.sessions.has(session)) return false;
    const isListed = this.listed.has(session.address);
    if (session === this.finder) {
      if (this.parts.isFixed || this.listed.size === 0 || session.address === "") return this.keep();
      // Found: from now on the node has a session of its own, by its own address.
      this.discard(session);
      if (isListed) this.open(this.parts.connectTo(session.address), session.address).dial();
    } else if (!isListed) this.discard(session);
    this.divide();
    if (this.finder === undefined && !this.isJoined) {
      // Nothing that was learned need hold any more.
      this.listVersion = 0;
      this.find();
    }
    return this.sessions.has(session);
  }

  private keep(): true {
    this.divide();
    return true;
  }

  private discard(session: Session): void {
    this.sessions.delete(session);
    if (session === this.finder) this.finder = undefined;
    session.close("The worker has no use for this stream");
  }

  // How the nodes share the worker's room.

  private roomOfNext(): Room {
    const { room } = this.parts;
    const count = this.joined().length + 1;
    return {
      activitySlots: Math.max(1, Math.ceil(room.activitySlots / count)),
      runSlots: room.runSlots === 0 ? 0 : Math.max(1, Math.ceil(room.runSlots / count)),
    };
  }

  private divide(): void {
    const joined = this.joined();
    if (joined.length === 0) return;
    const used = joined.map((session) => session.used);
    const { activitySlots, runSlots } = this.parts.room;
    // What the nodes gave that are gone takes its room until it ends.
    this.orphans = this.parts.activities.count - used.reduce((sum, each) => sum + each.activitySlots, 0);
    const slots = shares(
      Math.max(0, activitySlots - this.orphans),
      used.map((each) => each.activitySlots),
    );
    const runs = shares(
      runSlots,
      used.map((each) => each.runSlots),
    );
    joined.forEach((session, at) => {
      session.give({ activitySlots: slots[at] as number, runSlots: runSlots === 0 ? 0 : (runs[at] as number) });
    });
    if (joined.length > 1 || this.orphans > 0) this.balancing ??= setInterval(() => this.balance(), balanceMs);
    else this.stopBalancing();
  }

  private balance(): void {
    const joined = this.joined();
    const used = joined.map((session) => session.used);
    const isNeeded = (["activitySlots", "runSlots"] as const).some((what) =>
      isUneven(
        joined.map((session) => session.room[what]),
        used.map((each) => each[what]),
      ),
    );
    if (isNeeded || this.orphans > 0) this.divide();
  }

  private stopBalancing(): void {
    clearInterval(this.balancing);
    this.balancing = undefined;
  }

  // The end.

  private async leave(): Promise<void> {
    const { activities, graceMs } = this.parts;
    const graceOver = performance.now() + graceMs;
    for (const session of this.sessions) session.send({ kind: "draining", value: {} });
    while (!activities.isSettled && performance.now() < graceOver) {
      await within(activities.count > 0 ? activities.idle() : this.change(), graceOver);
    }
    activities.abandon();
    this.isLeaving = true;
    this.stopBalancing();
    await this.part();
    this.onReady();
  }

  private async part(): Promise<void> {
    const until = performance.now() + partingMsMax;
    for (const session of this.sessions) session.end();
    const isThere = () => [...this.sessions].some((session) => !session.isIdle);
    while (isThere() && performance.now() < until) await within(this.change(), until);
    for (const session of this.sessions) session.close("The worker was closed");
  }

  /** Resolves at the next beginning or end of a stream. */
  private change(): Promise<void> {
    return new Promise((done) => {
      this.wake = done;
    });
  }
}

/** Waits for `promise`, but not beyond the time (of `performance.now`). */
async function within(promise: Promise<void>, untilMs: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<void>((done) => {
    timer = setTimeout(done, Math.max(0, untilMs - performance.now()));
  });
  await Promise.race([promise, timeout]);
  clearTimeout(timer);
}
