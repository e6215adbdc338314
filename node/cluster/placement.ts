/**
 * Placement as a node sees it: the newest view that it heard of, and a way to ask for changes
 * wherever placement is led.
 *
 * A view is never wrong, only old: it is what was committed at its version, and a node that lost
 * its watch goes on with the last one. Commands are safe to send again, so they are, until one is
 * answered or the caller's budget is over.
 */
import type { NodeId, ShardId } from "#core/base";
import { HopError } from "#core/base";
import {
  applyChanges,
  type ClusterView,
  decodeReply,
  decodeReport,
  decodeView,
  emptyView,
  encodeCommand,
  encodeReport,
  type NodeReport,
  type PlacementCommand,
  type PlacementReply,
  type ShardLoadReport,
} from "#core/placement";
import { decodePlacementAnswered, encodePlacementAsk, fromBytes, type Identity, toBytes } from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import type { Timing } from "../timing.ts";
import type { LocalPlacement } from "./local-shards.ts";

export const placementCalls = {
  command: "placement.command",
  leader: "placement.leader",
  watch: "placement.watch",
  report: "placement.report",
  figures: "placement.figures",
  join: "placement.join",
} as const;

export interface PlacementParts {
  readonly self: NodeId;
  readonly net: PeerNet;
  readonly timing: Timing;
  /** This node's own voter, while it is one. */
  readonly local: () => LocalPlacement | undefined;
  /** Nodes to ask for placement's leader before the first view: voters that seeds named. */
  readonly known: () => readonly NodeId[];
  /** What this node tells placement about its shards; asked for once a second. */
  readonly loads: () => ReadonlyMap<ShardId, ShardLoadReport>;
  /** This node's disk takes nothing more. Left out: it always does. */
  readonly isFull?: () => boolean;
  readonly note: (level: "info" | "warn", what: string, fields?: Record<string, string | number>) => void;
}

export type ViewListener = (view: ClusterView) => void;

const commandMsMax = 10_000;
const callMsMax = 2_000;
const leaderMsMax = 1_000;
const pauseMsMin = 10;
const pauseMsMax = 200;
const reportMs = 1_000;

export class Placement {
  readonly parts: PlacementParts;
  private current: ClusterView = emptyView;
  private readonly listeners = new Set<ViewListener>();
  private hooked: LocalPlacement | undefined;
  /** Leader as it was last found; 0 = not known. */
  private leader = 0;
  private turn = 0;
  private isClosed = false;
  private readonly gone = new AbortController();
  private stopReports = () => {};
  private readonly heard = new Map<NodeId, NodeReport>();
  private leadsSince: number | undefined;
  private refreshing: Promise<void> = Promise.resolve();

  constructor(parts: PlacementParts) {
    this.parts = parts;
  }

  /** Begins to watch and to report. */
  start(): void {
    void this.watch();
    this.armReport();
  }

  close(): void {
    this.isClosed = true;
    this.stopReports();
    this.gone.abort();
  }

  /** The newest view that this node heard of; empty before the first one. */
  get view(): ClusterView {
    return this.current;
  }

  /** Calls `listener` with each newer view, until the returned function is called. */
  onView(listener: ViewListener): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  /** This node leads placement. */
  get leads(): boolean {
    return this.parts.local()?.leads() ?? false;
  }

  /** Node that leads placement, as it was last found. */
  get leaderHint(): NodeId | undefined {
    if (this.leads) return this.parts.self;
    const hint = this.parts.local()?.leaderHint() ?? this.leader;
    return hint === 0 ? undefined : (hint as NodeId);
  }

  /**
   * Asks placement, wherever it is led, and tries again until it answers. What placement refuses is
   * a reply of kind `rejected`. Rejects with `HopError` STORE_UNAVAILABLE where none answered within `budgetMs`.
   */
  async command(identity: Identity, command: PlacementCommand, budgetMs = commandMsMax): Promise<PlacementReply> {
    const startedMs = this.parts.timing.monotonicMs();
    let last = "no node leads it";
    for (let pauseMs = pauseMsMin; ; pauseMs = Math.min(pauseMs * 2, pauseMsMax)) {
      try {
        const reply = await this.ask(identity, command);
        if (reply !== undefined) return reply;
      } catch (error) {
        const { reason, message } = asHopError(error);
        last = message;
        if (!isPassing(reason)) throw error;
      }
      if (this.isClosed || this.parts.timing.monotonicMs() - startedMs + pauseMs >= budgetMs) {
        const message = `Cannot reach placement for ${budgetMs} ms (last: ${last}); whether ${command.kind} was done is not known, it may be asked again`;
        throw new HopError("STORE_UNAVAILABLE", message, { retryAfterMs: 500 });
      }
      await this.pause(pauseMs);
    }
  }

  /** As `command`, but a refusal of placement's is thrown as `HopError`. */
  async demand(identity: Identity, command: PlacementCommand, budgetMs?: number): Promise<Exclude<PlacementReply, { kind: "rejected" }>> {
    const reply = await this.command(identity, command, budgetMs);
    if (reply.kind === "rejected") throw HopError.from(reply.rejection);
    return reply;
  }

  /** Resolves with a view for which `isReached` holds; rejects with `HopError` BUDGET_EXPIRED after `ms`. */
  until(isReached: (view: ClusterView) => boolean, ms: number, what: string): Promise<ClusterView> {
    if (isReached(this.current)) return Promise.resolve(this.current);
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        stopTimer();
        stopView();
      };
      const stopTimer = this.parts.timing.after(ms, () => {
        settle();
        reject(new HopError("BUDGET_EXPIRED", `Waited ${ms} ms for ${what}`));
      });
      const stopView = this.onView((view) => {
        if (!isReached(view)) return;
        settle();
        resolve(view);
      });
    });
  }

  /** Brings the view up to what placement had when this was called. Rejects with `HopError` where that can't be reached. */
  refresh(): Promise<void> {
    // One that is under way may have begun before.
    this.refreshing = this.refreshing.catch(() => {}).then(() => this.refreshOnce());
    return this.refreshing;
  }

  private async refreshOnce(): Promise<void> {
    this.hook();
    if (this.leads) return;
    const node = await this.findLeader();
    if (node === undefined || node === this.parts.self)
      throw new HopError("STORE_UNAVAILABLE", "Cannot ask placement: no node leads it now");
    for await (const chunk of this.parts.net.stream(node, placementCalls.watch, noBody, { timeoutMs: callMsMax })) {
      this.install(decodeView(chunk));
      return;
    }
  }

  /** Newest report of each node since this one leads placement; `lastHeardMs` in monotonic milliseconds. */
  reports(): ReadonlyMap<NodeId, NodeReport> {
    return this.heard;
  }

  /** Monotonic milliseconds since when this node leads placement; undefined where it does not. */
  leadsSinceMs(): number | undefined {
    this.noteLeading();
    return this.leadsSince;
  }

  /** Placement's leader takes a node's report. Throws `HopError` NOT_LEADER elsewhere. */
  takeReport(bytes: Uint8Array): void {
    if (this.leadsSinceMs() === undefined) throw notLeading();
    const { node, report } = decodeReport(bytes, this.parts.timing.monotonicMs());
    this.heard.set(node, report);
  }

  /** Takes a view that another node had, if it is newer. */
  install(view: ClusterView): void {
    if (view.version <= this.current.version) return;
    this.current = view;
    for (const listener of [...this.listeners]) listener(view);
  }

  /** One attempt; undefined where nobody leads placement as far as can be found. */
  private async ask(identity: Identity, command: PlacementCommand): Promise<PlacementReply | undefined> {
    const local = this.parts.local();
    if (local?.leads()) return local.command(identity, command);
    const node = await this.findLeader();
    if (node === undefined || node === this.parts.self) return undefined;
    const body = toBytes(encodePlacementAsk, { identity, command: encodeCommand(command) });
    try {
      const answer = fromBytes(
        decodePlacementAnswered,
        await this.parts.net.call(node, placementCalls.command, body, { timeoutMs: callMsMax }),
      );
      if (answer.answer.length > 0) return decodeReply(answer.answer);
      this.leader = answer.leader === node ? 0 : answer.leader;
      return undefined;
    } catch (error) {
      if (this.leader === node) this.leader = 0;
      throw error;
    }
  }

  private async findLeader(): Promise<NodeId | undefined> {
    const hint = this.parts.local()?.leaderHint() ?? this.leader;
    if (hint !== 0) {
      this.leader = hint;
      return hint as NodeId;
    }
    const node = this.candidate();
    if (node === undefined) return undefined;
    const answer = await this.parts.net.call(node, placementCalls.leader, noBody, { timeoutMs: leaderMsMax });
    this.leader = fromBytes(decodePlacementAnswered, answer).leader;
    return this.leader === 0 ? undefined : (this.leader as NodeId);
  }

  /** The next node to ask who leads: voters first, and any member where they do not know. */
  private candidate(): NodeId | undefined {
    const { placement, nodes } = this.current;
    const voters = [...(placement?.voters ?? []), ...(placement?.outgoing ?? []), ...this.parts.known()];
    const members = [...nodes.values()].filter((each) => each.standing === "member").map((each) => each.node);
    const all = [...new Set([...voters, ...voters, ...members])].filter((node) => node !== this.parts.self);
    return all.length === 0 ? undefined : all[this.turn++ % all.length];
  }

  /** Views come from this node's own voter, and from the leader wherever that is. */
  private async watch(): Promise<void> {
    let pauseMs = pauseMsMin;
    while (!this.isClosed) {
      this.hook();
      if (this.leads) {
        await this.pause(pauseMsMax);
        continue;
      }
      const before = this.current.version;
      try {
        const node = await this.findLeader();
        if (node !== undefined && node !== this.parts.self) await this.follow(node);
      } catch (error) {
        if (this.isClosed) return;
        this.parts.note("info", "placement's watch ended", { reason: asHopError(error).message });
      }
      this.leader = 0;
      pauseMs = this.current.version > before ? pauseMsMin : Math.min(pauseMs * 2, pauseMsMax);
      await this.pause(pauseMs);
    }
  }

  private async follow(node: NodeId): Promise<void> {
    const stream = this.parts.net.stream(node, placementCalls.watch, noBody, { signal: this.gone.signal });
    let base: ClusterView | undefined;
    for await (const chunk of stream) {
      base = base === undefined ? decodeView(chunk) : applyChanges(base, chunk);
      this.leader = node;
      this.install(base);
      if (this.leads) return;
    }
  }

  private hook(): void {
    const local = this.parts.local();
    this.noteLeading();
    if (local === this.hooked) return;
    this.hooked = local;
    if (local === undefined) return;
    local.onView = (view) => this.install(view);
    this.install(local.view());
  }

  /** Reports of an earlier leadership say nothing any more. */
  private noteLeading(): void {
    if (this.leads === (this.leadsSince !== undefined)) return;
    this.leadsSince = this.leads ? this.parts.timing.monotonicMs() : undefined;
    this.heard.clear();
  }

  private armReport(): void {
    this.stopReports = this.parts.timing.after(reportMs, () => {
      void this.sendReport().finally(() => {
        if (!this.isClosed) this.armReport();
      });
    });
  }

  private async sendReport(): Promise<void> {
    this.hook();
    const report = encodeReport(this.parts.self, this.parts.loads(), this.parts.isFull?.() ?? false);
    const leader = this.leaderHint;
    if (leader === undefined) return;
    // One that is lost is followed by the next.
    await this.parts.net.call(leader, placementCalls.report, report, { timeoutMs: leaderMsMax }).catch(() => {});
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => void this.parts.timing.after(ms, resolve));
  }
}

const noBody = new Uint8Array(0);
const isPassing = (reason: string) => reason === "NOT_LEADER" || reason === "STORE_UNAVAILABLE" || reason === "BUDGET_EXPIRED";

export const notLeading = () => new HopError("NOT_LEADER", "Cannot answer for placement: this node does not lead it", { retryAfterMs: 50 });
