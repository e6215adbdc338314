/**
 * Which events a cold query is about: told by flags, so that segments without any of them are never
 * fetched, and the condition under which the rest shows them.
 */
import { keyOfDigest, type Partition, type RunId, runPartition } from "#core/base";
import type { SegmentSummary } from "#store";
import { sha256 } from "../audit/hasher.ts";
import { type Context, type GlobalOptions, namespaceName, runId } from "../context.ts";
import { parseDuration } from "../duration.ts";
import { UsageError } from "../failure.ts";

export interface FilterOptions extends GlobalOptions {
  readonly since?: string;
  readonly until?: string;
  readonly run?: string;
}

/** All that is set must hold. */
export interface EventFilter {
  /** Milliseconds since 1970, inclusive. */
  readonly sinceMs: number | undefined;
  /** Exclusive. */
  readonly untilMs: number | undefined;
  /** One partition. */
  readonly partition: Partition | undefined;
  /** What partitions begin with, and the first text behind all of those. */
  readonly prefix: { readonly first: string; readonly end: string } | undefined;
}

/** The environment's namespace is a default for names of runs, and no filter. */
export function filterOf(options: FilterOptions, env: Context["env"], nowMs: number): EventFilter {
  const sinceMs = options.since === undefined ? undefined : momentOf(options.since, "--since", nowMs);
  const untilMs = options.until === undefined ? undefined : momentOf(options.until, "--until", nowMs);
  if (sinceMs !== undefined && untilMs !== undefined && sinceMs >= untilMs)
    throw new UsageError(`Cannot query from --since ${options.since} to --until ${options.until}: no time lies between them`);
  const run: RunId | undefined = options.run === undefined ? undefined : runId(options.run, options, env);
  const namespace = options.namespace === undefined ? undefined : namespaceName(options, env);
  return {
    sinceMs,
    untilMs,
    partition: run === undefined ? undefined : runPartition(run),
    // ";" is the character after ":".
    prefix: namespace === undefined ? undefined : { first: `run/${namespace}:`, end: `run/${namespace};` },
  };
}

const isoTime = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?$/;

/** A time, UTC unless it says where, or how long ago. */
export function momentOf(text: string, option: string, nowMs: number): number {
  if (!/^\d{4}-/.test(text)) return nowMs - parseDuration(text, option);
  const hasZone = /(?:Z|[+-]\d\d:\d\d)$/.test(text.slice(10)) || text.length === 10;
  const ms = isoTime.test(text) ? Date.parse(hasZone ? text.replace(" ", "T") : `${text.replace(" ", "T")}Z`) : Number.NaN;
  if (Number.isNaN(ms))
    throw new UsageError(
      `Cannot use ${option} ${JSON.stringify(text)}: want a time such as 2026-02-03T04:05:06Z, or how long ago, such as 2h`,
    );
  return ms;
}

/** Whether the segment can have events that the filter lets through, by what its manifest says of it. */
export function mayMatch({ extent }: SegmentSummary, { sinceMs, untilMs, partition, prefix }: EventFilter): boolean {
  if (extent === undefined) return false;
  if (sinceMs !== undefined && extent.lastTimeMs < sinceMs) return false;
  if (untilMs !== undefined && extent.firstTimeMs >= untilMs) return false;
  if (prefix !== undefined && (order(extent.lastPartition, prefix.first) < 0 || order(extent.firstPartition, prefix.end) >= 0))
    return false;
  return partition === undefined || mayHoldPartition(extent, partition);
}

function mayHoldPartition(extent: NonNullable<SegmentSummary["extent"]>, partition: Partition): boolean {
  const key = keyOfDigest(sha256(new TextEncoder().encode(partition)));
  if (key < extent.firstKey || key > extent.lastKey) return false;
  return order(extent.firstPartition, partition) <= 0 && order(extent.lastPartition, partition) >= 0;
}

/** That of the texts' UTF-8 bytes, as in a segment. */
const order = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));

/** The filter as SQL over the columns of a segment. */
export function conditionOf({ sinceMs, untilMs, partition, prefix }: EventFilter): string {
  const conditions = [
    sinceMs === undefined ? [] : `time_ms >= ${sinceMs}`,
    untilMs === undefined ? [] : `time_ms < ${untilMs}`,
    partition === undefined ? [] : `partition = ${sqlText(partition)}`,
    prefix === undefined ? [] : `partition >= ${sqlText(prefix.first)} AND partition < ${sqlText(prefix.end)}`,
  ].flat();
  return conditions.length === 0 ? "true" : conditions.join(" AND ");
}

/** A text as SQL has it. */
export const sqlText = (text: string) => `'${text.replaceAll("'", "''")}'`;
