/**
 * Idempotency keys of activities: their partitions, what follows from what keys and operations told
 * each other, and forgetting. The rules are [idempotency.ts](../run/idempotency.ts).
 */
import { isKey, keyPartition, nameProblem, type Partition, type RunId, toHex } from "#core/base";
import {
  claimAgain,
  claimRefused,
  decideClaim,
  decideForgotten,
  decideStrayReleased,
  decideTakeOfKey,
  keyDueMs,
  type RunEvent,
  strayClaims,
  unheardClaims,
} from "#core/run";
import { type Command, CommandKind, EventKind, type KeyClaim, Writer } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";
import { remind } from "./reminders.ts";
import { freeTask, offer } from "./tasks.ts";

export const isKeyed = ({ kind, options }: Pick<Command, "kind" | "options">): boolean =>
  kind === CommandKind.activity && (options?.idempotencyKey ?? "") !== "";

/** The claim of an activity with a key; undefined where it has none. */
export function claimOf(ctx: ShardContext, live: LiveRun, command: Command): KeyClaim | undefined {
  if (!isKeyed(command)) return undefined;
  const { name, payload: input, options } = command;
  const idempotencyKey = options?.idempotencyKey ?? "";
  const to = partitionOfKey(ctx, live.namespace, { activity: name, key: idempotencyKey });
  return decideClaim(live.run, to, ctx.inputHash({ idempotencyKey, type: name, input }));
}

/**
 * `key/NAMESPACE:ACTIVITY:KEY` where that is a name and says which part is which; else a hash of the two, which
 * holds no colon and so is no other's name.
 */
function partitionOfKey(ctx: ShardContext, namespace: string, { activity, key }: { activity: string; key: string }): Partition {
  const name = `${activity}:${key}`;
  const isPlain = !activity.includes(":") && nameProblem(name) === undefined;
  if (isPlain) return keyPartition(`${namespace}:${name}` as RunId);
  const digest = new Uint8Array(32);
  const w = new Writer(256);
  w.text(10, activity);
  w.text(18, key);
  ctx.options.hasher.sha256(w.bytes.subarray(0, w.at), digest);
  return keyPartition(`${namespace}:${toHex(digest)}` as RunId);
}

/** What follows from what a key told an operation of the run. */
export function afterKey(ctx: ShardContext, live: LiveRun, event: RunEvent): void {
  if (event.kind === EventKind.activityGranted) {
    const o = live.run.pending.get(event.body.op);
    if (o !== undefined) offer(ctx, live, o);
  } else if (event.kind === EventKind.activityCompleted) {
    const task = live.tasks.get(event.body.op);
    if (task !== undefined) freeTask(ctx, live, task, "It was executed elsewhere under its idempotency key");
  }
}

/** At the end of a step that changed it: when it is to be forgotten is minded. */
export function mindKey(ctx: ShardContext, live: LiveRun): void {
  const { key } = live.run;
  if (key === undefined) return;
  const dueMs = keyDueMs(key);
  if (dueMs !== Number.POSITIVE_INFINITY) remind(ctx, live, "key", dueMs);
}

export function onKeyDue(ctx: ShardContext, live: LiveRun): void {
  const event = decideForgotten(live.run, ctx.nowMs);
  if (event !== undefined) ctx.append(live, event, ctx.core(live.run.firstSeq));
}

/** A run and a key, each in its shard, before anybody leads those. */
interface Restored {
  readonly sender: ShardContext;
  readonly receiver: ShardContext;
  readonly from: LiveRun;
  readonly to: LiveRun;
}

/**
 * After a restore: claims that the key does not know of are made again, and it gives up those that nobody knows of.
 * Returns how many of each.
 */
export function reclaim({ sender, receiver, from, to }: Restored): { readonly asked: number; readonly refused: number } {
  if (!isKey(to.partition)) return { asked: 0, refused: 0 };
  for (const stray of strayClaims(from.run, to, from.partition))
    receiver.append(to, decideStrayReleased(stray), receiver.core(to.run.firstSeq));
  receiver.seal();
  let asked = 0;
  let refused = 0;
  for (const o of unheardClaims(from.run, to, from.partition)) {
    const { name: type, input, options } = o;
    const inputHash = sender.inputHash({ idempotencyKey: options?.idempotencyKey ?? "", type, input });
    const decision = decideTakeOfKey(to.run, from.partition, claimAgain(from.run, o, inputHash), receiver.keyRetentionMs);
    if (decision !== undefined && "kind" in decision) {
      receiver.append(to, decision, receiver.core(Math.max(0, to.chain.size - 1)));
      asked++;
    } else if (!o.granted) {
      sender.append(from, claimRefused(o, decision?.refusal ?? "BAD_REQUEST"), sender.core(o.scheduledSeq));
      refused++;
    }
  }
  receiver.seal();
  sender.seal();
  return { asked, refused };
}
