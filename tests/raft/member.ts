/**
 * A simulated member: Raft above a disk that takes its time and a state machine that only counts.
 *
 * A crash keeps what is durable and, of the writes under way, a part that the disk happened to
 * finish, in order; the last may be torn.
 */
import { asIndex, type Index, type NodeId, type Prng } from "#core/base";
import {
  type Append,
  type ConfState,
  confChangeOf,
  type Entry,
  type Message,
  noConf,
  Raft,
  type RaftConfig,
  type SnapshotMeta,
} from "#core/raft";
import { RaftEntryKind } from "#proto";
import type { LogView, MemberView } from "./invariants.ts";
import { MemoryStorage } from "./memory-storage.ts";

export interface MemberHost {
  readonly prng: Prng;
  /** Runs `action` at this member after `ms`, unless it crashes before. */
  after(id: NodeId, ms: number, action: () => void): void;
  send(message: Message): void;
  /** A read with this context may see everything up to `index`. */
  answered(id: NodeId, context: number, index: number): void;
  writeMeanMs: number;
  applyMeanMs: number;
}

export type Settings = Omit<RaftConfig, "id" | "storage" | "applied" | "draw">;

export class Member {
  readonly id: NodeId;
  raft: Raft | undefined;
  isRemoved = false;
  private readonly host: MemberHost;
  private readonly settings: Settings;
  private durable = new MemoryStorage();
  private visible = new MemoryStorage();
  private writes: Append[] = [];
  private isWriting = false;
  private queue: Entry[] = [];
  private isApplying = false;
  /** The configuration that came with each index, the newest last. */
  private confs: { readonly index: number; readonly conf: ConfState }[] = [];

  constructor(id: NodeId, host: MemberHost, settings: Settings) {
    this.id = id;
    this.host = host;
    this.settings = settings;
  }

  /** The disk of a member of the group's first configuration. */
  format(snapshot: SnapshotMeta): void {
    this.durable.install(snapshot);
  }

  start(): void {
    const { durable } = this;
    this.visible = copyOf(durable);
    this.visible.latest = () => this.latestSnapshot();
    this.confs = [{ index: durable.base.index, conf: durable.conf }];
    this.raft = new Raft({
      ...this.settings,
      id: this.id,
      storage: this.visible,
      applied: durable.base.index,
      draw: (below) => this.host.prng.below(below),
    });
  }

  crash(): void {
    const done = this.host.prng.below(this.writes.length + 1);
    for (const write of this.writes.slice(0, done)) store(this.durable, write);
    const torn = this.writes[done];
    // Of the next one there may be entries on the disk, but what came with them is lost.
    if (torn !== undefined && torn.snapshot === undefined && this.host.prng.chance(0.5)) this.durable.append(torn.entries);
    this.writes = [];
    this.queue = [];
    this.isWriting = false;
    this.isApplying = false;
    this.raft = undefined;
  }

  private latestSnapshot(): SnapshotMeta | "later" {
    const index = this.raft?.status().applied ?? asIndex(0);
    const term = this.visible.term(index);
    // The configuration in force is that of the last applied entry.
    return typeof term === "string" ? "later" : { index, term, conf: this.raft?.conf ?? noConf };
  }

  /** Drops the log up to a random applied and durable entry. */
  compact(): void {
    const applied = this.raft?.status().applied ?? 0;
    const most = Math.min(applied, this.durable.lastIndex());
    const to = most - this.host.prng.below(5);
    // The disk must be where the log in memory is: else it would be cut under writes to come.
    if (this.writes.length > 0 || to <= this.durable.base.index) return;
    const conf = this.confs.findLast(({ index }) => index <= to)?.conf;
    if (conf === undefined) return;
    for (const storage of [this.durable, this.visible]) {
      storage.compact(to);
      storage.conf = conf;
    }
  }

  /** Does all that there is to do. */
  pump(): void {
    for (let { raft } = this; raft?.hasReady() === true; { raft } = this) {
      const { messages, append, committed, reads } = raft.ready();
      if (append !== undefined) {
        store(this.visible, append);
        if (append.snapshot !== undefined) {
          this.confs = [{ index: append.snapshot.index, conf: append.snapshot.conf }];
          this.queue = [];
        }
        this.writes.push(append);
        this.writeNext();
      }
      for (const message of messages) this.host.send(message);
      for (const { context, index } of reads) this.host.answered(this.id, context, index);
      this.queue.push(...committed);
      if (committed.length > 0) this.applyNext();
    }
  }

  /** One write is in flight; it takes all that waits when it begins. */
  private writeNext(): void {
    if (this.isWriting || this.writes.length === 0) return;
    this.isWriting = true;
    const count = this.writes.length;
    this.host.after(this.id, this.delay(this.host.writeMeanMs), () => {
      this.isWriting = false;
      for (const write of this.writes.splice(0, count)) {
        store(this.durable, write);
        for (const response of write.responses) {
          if (response.to === this.id) this.raft?.step(response);
          else this.host.send(response);
        }
      }
      this.writeNext();
      this.pump();
    });
  }

  private applyNext(): void {
    if (this.isApplying || this.queue.length === 0) return;
    this.isApplying = true;
    this.host.after(this.id, this.delay(this.host.applyMeanMs), () => {
      this.isApplying = false;
      const { raft } = this;
      if (raft === undefined) return;
      for (const { kind, data, index } of this.queue.splice(0)) {
        if (kind === RaftEntryKind.config) this.confs.push({ index, conf: raft.applyConfChange(confChangeOf(data)) });
        raft.applied(asIndex(index));
      }
      this.pump();
    });
  }

  private delay(meanMs: number): number {
    return meanMs === 0 ? 0 : -Math.log(1 - this.host.prng.fraction()) * meanMs;
  }

  view(): MemberView {
    const { raft, id, durable } = this;
    const durableView = viewOf(durable);
    if (raft === undefined) {
      const { term, vote, commit } = durable.hard;
      return {
        id,
        term,
        vote,
        role: "follower",
        commit: Math.max(commit, durable.base.index),
        conf: durable.conf,
        log: durableView,
        durable: durableView,
      };
    }
    const log: LogView = {
      base: raft.firstIndex() - 1,
      lastIndex: raft.lastIndex(),
      term: (index) => raft.termOf(index as Index),
    };
    const { term, vote, role, commit, conf } = raft;
    return { id, term, vote, role, commit, conf, log, durable: durableView };
  }
}

function viewOf(storage: MemoryStorage): LogView {
  return {
    base: storage.base.index,
    lastIndex: storage.lastIndex(),
    term: (index) => {
      const term = storage.term(index);
      return typeof term === "string" ? -1 : term;
    },
  };
}

function copyOf(storage: MemoryStorage): MemoryStorage {
  const copy = new MemoryStorage();
  copy.hard = storage.hard;
  copy.conf = storage.conf;
  copy.base = { ...storage.base };
  copy.log = [...storage.log];
  return copy;
}

/** A commit index alone is not written: a host may leave that out. */
function store(storage: MemoryStorage, { hardState, snapshot, entries }: Append): void {
  const { term, vote } = storage.hard;
  if (hardState !== undefined && (hardState.term !== term || hardState.vote !== vote)) storage.hard = hardState;
  if (snapshot !== undefined) storage.install(snapshot);
  storage.append(entries);
}
