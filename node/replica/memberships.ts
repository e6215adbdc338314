/** Memberships of a group since the last checkpoint: one that is saved names the membership as of its own index. */
import { asIndex, type Index } from "#core/base";
import type { ReplicaSet } from "#core/placement";
import { type ConfState, membersOf, noConf } from "#core/raft";
import { birthIndex } from "./births.ts";

interface Membership {
  /** Index of the change that made it; 0 = the group began with it. */
  readonly index: number;
  readonly conf: ConfState;
}

export class Memberships {
  /** Oldest first, never empty once it began. */
  private list: Membership[] = [];

  /** The machine was put to `appliedIndex`, where the membership was `conf`; the member knows what was committed since. */
  beginAt(appliedIndex: number, conf: ConfState): void {
    const later = this.list.filter((each) => each.index > appliedIndex);
    this.list = [{ index: appliedIndex === birthIndex ? 0 : appliedIndex, conf }, ...later];
  }

  add(conf: ConfState, index: Index): void {
    this.list.push({ index, conf });
  }

  at(index: number): ConfState {
    return this.list.findLast((each) => each.index <= index)?.conf ?? noConf;
  }

  /** A checkpoint at `index` is saved: what was before it is not asked for again. */
  saved(index: number): void {
    while (this.list.length > 1 && (this.list[1] as Membership).index <= index) this.list.shift();
  }

  /** Whether all members of the newest one are in `conf`. */
  areIn(conf: ConfState): boolean {
    const members = membersOf(conf);
    return membersOf(this.newest.conf).every((each) => members.includes(each));
  }

  /** Index of the newest one. */
  get newestIndex(): number {
    return this.newest.index;
  }

  /** The newest one as placement is told of it. */
  replicaSet(): ReplicaSet {
    const { conf, index } = this.newest;
    return { voters: conf.voters, outgoing: conf.votersOutgoing, learners: conf.learners, configIndex: asIndex(index) };
  }

  private get newest(): Membership {
    return this.list.at(-1) as Membership;
  }
}
