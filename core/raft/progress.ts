/**
 * What a leader knows of one member, and how fast it may send to it.
 *
 * - `probe`: it is not known where the logs part; one append at a time, until one is accepted.
 * - `replicate`: appends are sent ahead of their replies, as far as the in-flight limits allow.
 * - `snapshot`: the member is behind the log; nothing is sent until it has what it needs.
 *
 * Always `match` < `next`: up to `match` the logs are known to be equal, `next` is sent next.
 */
import { assert, type NodeId } from "#core/base";
import { Inflights } from "./inflights.ts";

export type ProgressState = "probe" | "replicate" | "snapshot";

export class Progress {
  readonly id: NodeId;
  match = 0;
  next: number;
  state: ProgressState = "probe";
  /** Index of the snapshot that is on its way. */
  pendingSnapshot = 0;
  /** Election timeouts for which the snapshot has been on its way. */
  snapshotRounds = 0;
  /** It answered since the last quorum check. */
  recentActive = false;
  /** Nothing is sent until a reply, or a heartbeat's reply, comes. */
  isFlowPaused = false;
  isLearner: boolean;
  /** Tick of this leader that the newest heartbeat reply echoed; −1 before the first. */
  echoedTick = -1;
  readonly inflights: Inflights;
  /** Highest commit index that was sent to it. */
  private sentCommit = 0;

  constructor(id: NodeId, init: { next: number; isLearner: boolean; maxInflight: number; maxInflightBytes: number }) {
    this.id = id;
    this.next = init.next;
    this.isLearner = init.isLearner;
    this.inflights = new Inflights(init.maxInflight, init.maxInflightBytes);
  }

  /** As at the beginning of a term. */
  reset(match: number, next: number): void {
    this.match = match;
    this.next = next;
    this.sentCommit = 0;
    this.recentActive = false;
    this.echoedTick = -1;
    this.enter("probe");
  }

  /** It has nothing of what it once acknowledged. */
  startOver(): void {
    this.match = 0;
    this.next = 1;
    this.sentCommit = 0;
    this.enter("probe");
  }

  private enter(state: ProgressState): void {
    this.isFlowPaused = false;
    this.pendingSnapshot = 0;
    this.state = state;
    this.inflights.clear();
  }

  becomeProbe(): void {
    const behindSnapshot = this.state === "snapshot" ? this.pendingSnapshot + 1 : 0;
    this.enter("probe");
    this.next = Math.max(this.match + 1, behindSnapshot);
    this.sentCommit = Math.min(this.sentCommit, this.next - 1);
  }

  becomeReplicate(): void {
    this.enter("replicate");
    this.next = this.match + 1;
  }

  becomeSnapshot(index: number): void {
    this.enter("snapshot");
    this.snapshotRounds = 0;
    this.pendingSnapshot = index;
    this.next = index + 1;
    this.sentCommit = index;
  }

  isPaused(): boolean {
    return this.state === "snapshot" || this.isFlowPaused;
  }

  sentEntries(count: number, bytes: number): void {
    assert(this.state !== "snapshot", `Cannot send entries to node ${this.id}: a snapshot is on its way`);
    if (this.state === "probe") {
      if (count > 0) this.isFlowPaused = true;
      return;
    }
    if (count > 0) {
      this.next += count;
      this.inflights.add(this.next - 1, bytes);
    }
    this.isFlowPaused = this.inflights.isFull();
  }

  sentCommitIndex(commit: number): void {
    this.sentCommit = commit;
  }

  /** A higher commit index would tell the member something about entries it was sent. */
  canRaiseCommit(commit: number): boolean {
    return commit > this.sentCommit && this.sentCommit < this.next - 1;
  }

  /** The member has everything up to `index`. False if that was known. */
  acknowledge(index: number): boolean {
    if (index <= this.match) return false;
    this.match = index;
    this.next = Math.max(this.next, index + 1);
    this.isFlowPaused = false;
    return true;
  }

  /** An append behind `rejected` did not fit; logs may be equal up to `hint`. False if the reply is an old one. */
  stepBack(rejected: number, hint: number): boolean {
    if (this.state === "replicate") {
      if (rejected <= this.match) return false;
      this.next = this.match + 1;
    } else {
      if (this.next - 1 !== rejected) return false;
      this.next = Math.max(Math.min(rejected, hint + 1), this.match + 1);
      this.isFlowPaused = false;
    }
    this.sentCommit = Math.min(this.sentCommit, this.next - 1);
    return true;
  }
}
