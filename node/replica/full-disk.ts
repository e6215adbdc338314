/**
 * Whether a node's log takes nothing more: such a node is not to lead.
 *
 * A log that is only behind has no room either, but has it again soon: it takes several looks in a row.
 */
import type { LogStore } from "#store";

/** Looks are a second apart. */
const looksMin = 3;

export class FullDisk {
  private readonly log: Pick<LogStore, "hasRoom">;
  private looksWithoutRoom = 0;

  constructor(log: Pick<LogStore, "hasRoom">) {
    this.log = log;
  }

  look(): boolean {
    this.looksWithoutRoom = this.log.hasRoom() ? 0 : this.looksWithoutRoom + 1;
    return this.looksWithoutRoom >= looksMin;
  }
}
