/** Tables of the visibility database, and one row of it. */
import type { DerivedFormat } from "../derived-database.ts";

/** One generation of a run. Times in milliseconds since 1970; `closedMs` 0 = open. */
export interface RunRow {
  readonly run: string;
  readonly generation: number;
  readonly namespace: string;
  readonly instance: string;
  readonly type: string;
  /** A `RunStatus`. */
  readonly status: number;
  readonly startedMs: number;
  readonly closedMs: number;
  readonly bundle: Uint8Array;
  /** Why it is blocked, failed, or was cancelled or terminated; else empty. */
  readonly note: string;
  readonly cancelRequested: boolean;
  /** Log index of the last record that changed the row. */
  readonly lastIndex: number;
  /** When its history expired; 0 = it did not. */
  readonly expiredMs: number;
  /** JSON: what its code made searchable, by name. A time is `{"time": milliseconds}`. */
  readonly searchable: string;
  /** Compensations that failed for good and were neither replayed nor dropped since. */
  readonly deadLetters: number;
}

export const visibilityFormat: Omit<DerivedFormat, "problem"> = {
  what: "index of runs",
  version: 4,
  schema: `
    CREATE TABLE run (
      key INTEGER NOT NULL, run TEXT NOT NULL, generation INTEGER NOT NULL, namespace TEXT NOT NULL, instance TEXT NOT NULL, type TEXT NOT NULL,
      status INTEGER NOT NULL, started_ms INTEGER NOT NULL, closed_ms INTEGER NOT NULL, bundle BLOB NOT NULL, note TEXT NOT NULL,
      cancel_requested INTEGER NOT NULL, last_index INTEGER NOT NULL,
      expired_ms INTEGER NOT NULL, searchable TEXT NOT NULL, dead_letters INTEGER NOT NULL, PRIMARY KEY (run, generation)
    ) STRICT;
    CREATE INDEX run_started ON run (started_ms DESC, run, generation);
    CREATE INDEX run_status ON run (status, started_ms DESC, run, generation);
    CREATE INDEX run_type ON run (type, started_ms DESC, run, generation);
    CREATE INDEX run_key ON run (key, run, generation);
    CREATE INDEX run_ended ON run (namespace, closed_ms, run, generation) WHERE closed_ms > 0 AND expired_ms = 0;
    CREATE INDEX run_dead_letters ON run (started_ms DESC, run, generation) WHERE dead_letters > 0;
    CREATE INDEX run_expired ON run (expired_ms) WHERE expired_ms > 0;
    CREATE TABLE applied (shard INTEGER PRIMARY KEY, applied_index INTEGER NOT NULL) STRICT;
  `,
};

/** In the order of the table's columns. */
export interface StoredRun {
  /** Of the run's partition. */
  key: number;
  run: string;
  generation: number;
  namespace: string;
  instance: string;
  type: string;
  status: number;
  started_ms: number;
  closed_ms: number;
  bundle: Uint8Array;
  note: string;
  cancel_requested: number;
  last_index: number;
  expired_ms: number;
  searchable: string;
  dead_letters: number;
}

export function rowOf(stored: StoredRun): RunRow {
  const { key: _, started_ms: startedMs, closed_ms: closedMs, cancel_requested: requested, last_index: lastIndex, ...rest } = stored;
  const { expired_ms: expiredMs, dead_letters: deadLetters, ...same } = rest;
  return { ...same, startedMs, closedMs, cancelRequested: requested !== 0, lastIndex, expiredMs, deadLetters };
}
