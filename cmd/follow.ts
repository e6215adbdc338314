/**
 * Waits for a run to end and shows on a terminal what it does meanwhile.
 *
 * A server that goes away is waited for as long as the client does: the run itself is not lost. A run that is blocked at a
 * fault of its code is waited for where a person watches on a terminal, and is a conflict else.
 */
import { asSeq, HopError } from "#core/base";
import { decodeEvent, type Event, EventKind, fromBytes, RunStatus } from "#proto";
import { type Context, InterruptedError, orInterrupted } from "./context.ts";
import { formatDuration } from "./duration.ts";
import { CommandError, exit, reasonOf } from "./failure.ts";
import { describe } from "./history.ts";
import type { Progress } from "./progress.ts";
import { type EndedRun, payloadBytes, type Remote } from "./remote.ts";
import { hasEnded } from "./status.ts";
import { visible, visibleLines } from "./terminal.ts";

export interface Followed {
  readonly run: string;
  /** Left out or 0: whichever is the newest. */
  readonly generation?: number;
  /** Longest wait in milliseconds; 0 = as long as it takes. */
  readonly waitMs: number;
  /** Who follows it has just started it: it is shown from its first event on. */
  readonly isNew?: boolean;
}

/** What the run did last is on its way for so long. */
const lastShownMsMax = 500;
const pauseMsMin = 100;
const pauseMsMax = 2000;
/** What an answer that the server gives at the end of the wait may take on its way. */
const answerMsMax = 500;

/** Rejects with BUDGET_EXPIRED when the run still goes on after `waitMs`. */
export async function follow(
  context: Context,
  remote: Remote,
  { run, generation = 0, waitMs, isNew = false }: Followed,
): Promise<EndedRun> {
  const progress = context.output.progress();
  const watching = new AbortController();
  const endsAt = waitMs === 0 ? Number.POSITIVE_INFINITY : performance.now() + waitMs;
  const shown = watchEvents(context, remote, { run, isNew }, progress, watching.signal);
  try {
    for (let pauseMs = pauseMsMin; ; pauseMs = Math.min(pauseMs * 2, pauseMsMax)) {
      try {
        const leftMs = Number.isFinite(endsAt) ? Math.max(1, Math.ceil(endsAt - performance.now())) : 0;
        const asked = remote.result({ run, generation, waitMs: leftMs });
        const reply = await orInterrupted(context.interrupt, leftMs === 0 ? asked : answered(asked, leftMs, remote));
        if (reply.outcome !== undefined && hasEnded(reply.outcome.status)) {
          await Promise.race([shown, Bun.sleep(isNew ? lastShownMsMax : 0)]);
          return { run, generation: reply.generation, outcome: reply.outcome };
        }
        if (performance.now() >= endsAt)
          throw new HopError("BUDGET_EXPIRED", `Cannot wait longer for ${run}: it has not ended after ${formatDuration(waitMs)}`);
        // Answered before its end: it is blocked, and may stay so for long.
        await orInterrupted(context.interrupt, Bun.sleep(Math.min(pauseMs, Math.max(0, endsAt - performance.now()))));
      } catch (error) {
        const reason = reasonOf(error);
        // A person who watches may be about to fix the code; a program has nobody to wait for.
        const isWorthWaiting = reason === "RUN_BLOCKED" && context.output.err.isTty;
        if (!isWorthWaiting || performance.now() + pauseMs >= endsAt) throw error;
        await orInterrupted(context.interrupt, Bun.sleep(pauseMs));
      }
    }
  } catch (error) {
    if (error instanceof InterruptedError) progress.line(`Stopped waiting; ${visible(run)} goes on`);
    throw error;
  } finally {
    watching.abort();
    progress.done();
  }
}

/** Bounds the wait for the server's answer also where the server is not there to give one. */
function answered<T>(reply: Promise<T>, waitMs: number, remote: Remote): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const why = remote.waitedFor() ?? `the server at ${remote.address} has not answered`;
    late.reject(
      new CommandError(exit.unavailable, `Cannot wait longer than ${formatDuration(waitMs)}: ${why}`, {
        next: "the run is not lost: ask again when the server is there",
      }),
    );
  }, waitMs + answerMsMax);
  return Promise.race([reply, late.promise]).finally(() => clearTimeout(timer));
}

/** Shows events as they come. A lost stream only ends the showing: the wait for the result goes on. */
async function watchEvents(
  context: Context,
  remote: Remote,
  { run, isNew }: { readonly run: string; readonly isNew: boolean },
  progress: Progress,
  done: AbortSignal,
): Promise<void> {
  try {
    const before = await remote.describe(run);
    if (done.aborted) return;
    // Of a run that is shown from its first event on, its events say so.
    if (!isNew && before.summary?.status === RunStatus.blocked) warnBlocked(context, progress, run, before.summary.note);
    if (!isNew && before.summary?.status === RunStatus.paused) warnPaused(context, progress, run, before.summary.note);
    const isQueued = before.summary?.status === RunStatus.queued;
    progress.update(isQueued ? `${visible(run)} waits: ${before.summary?.note}` : `${visible(run)} is running`);
    // Until it begins, what happens to the name is not of this start.
    if (isQueued) return;
    const history = remote.history({ run, fromSeq: asSeq(isNew ? before.firstSeq : before.size), follow: true });
    let stream: Promise<void> | undefined;
    for await (const { event } of untilDone(history, done)) {
      for (const decoded of event.map((bytes) => fromBytes(decodeEvent, bytes))) {
        showEvent(context, progress, run, decoded);
        if (decoded.kind === EventKind.chunkYielded) stream ??= watchStream(remote, { run, fromOffset: decoded.seq }, progress, done);
      }
    }
    await stream;
  } catch {
    // What matters of a failure is said by the wait for the result.
  }
}

/** Once the run yields something, whoever follows it is a consumer of its stream: chunks are shown, and the run finds somebody there. */
async function watchStream(
  remote: Remote,
  from: { readonly run: string; readonly fromOffset: number },
  progress: Progress,
  done: AbortSignal,
): Promise<void> {
  try {
    for await (const item of untilDone(remote.stream(from), done)) {
      if (item.kind === "chunk") progress.line(visible(new TextDecoder().decode(await payloadBytes(remote, item.value.chunk))));
    }
  } catch {
    // As with events.
  }
}

/** What comes until `done` aborts; its source is then told that nobody wants more. */
async function* untilDone<T>(source: AsyncIterable<T>, done: AbortSignal): AsyncGenerator<T> {
  const items = source[Symbol.asyncIterator]();
  const stopped = new Promise<undefined>((resolve) => {
    done.addEventListener("abort", () => resolve(undefined), { once: true });
  });
  for (;;) {
    const next = done.aborted ? undefined : await Promise.race([items.next(), stopped]);
    if (done.aborted || next === undefined || next.done === true) break;
    yield next.value;
  }
  await items.return?.(undefined);
}

function showEvent(context: Context, progress: Progress, run: string, event: Event): void {
  const { name, summary } = describe(event);
  if (event.kind === EventKind.runBlocked) warnBlocked(context, progress, run, summary);
  else if (event.kind === EventKind.runPaused) warnPaused(context, progress, run, summary);
  else progress.update(`${visible(run)}  ${event.seq} ${name} ${visible(summary)}`);
}

function warnBlocked({ output }: Context, progress: Progress, run: string, why: string): void {
  progress.line(`${output.paintErr("yellow", "warning:")} ${visible(run)} is blocked: ${visibleLines(why)}`);
  progress.line(`  ${output.paintErr("dim", "next:")} fix the code, deploy it, then \`hop workflow retry ${visible(run)} --newest\``);
}

function warnPaused({ output }: Context, progress: Progress, run: string, why: string): void {
  progress.line(`${output.paintErr("yellow", "warning:")} ${visible(run)} is paused${why === "" ? "" : `: ${visibleLines(why)}`}`);
  progress.line(`  ${output.paintErr("dim", "next:")} let it go on with \`hop workflow unpause ${visible(run)}\``);
}
