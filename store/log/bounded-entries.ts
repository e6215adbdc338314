/** Entries that follow each other, as many as a number of bytes takes, and at least one. */
import type { LogEntry } from "./log-store.ts";

export class BoundedEntries {
  readonly list: LogEntry[] = [];
  private bytesLeft: number;

  constructor(maxBytes: number) {
    this.bytesLeft = maxBytes;
  }

  /** False when it is full, and the entry was not taken. */
  add(entry: LogEntry): boolean {
    if (this.list.length > 0 && entry.data.length > this.bytesLeft) return false;
    this.list.push(entry);
    this.bytesLeft -= entry.data.length;
    return true;
  }
}
