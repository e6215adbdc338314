/**
 * `hop audit`: fetches a run's history, checks it to the byte, and prints who did what when.
 *
 * What is printed was checked before: an event appears only once its bytes are in place in the
 * chain that the first event begins. The exit code is 0 only if everything holds.
 */
import { channelPartition, keyPartition, type RunId, runPartition, schedulePartition } from "#core/base";
import { historyChecks, inclusionProof, isVerified, proofFileText, savedRootText } from "#core/merkle";
import type { DescribeReply } from "#proto";
import { readRootFile, writeWhole } from "../audit/files.ts";
import { hasher } from "../audit/hasher.ts";
import { AuditError, type AuditedEvent, type AuditedHistory, auditHistory, type HistorySource } from "../audit/history-audit.ts";
import { type FolderVerdict, OfflineData } from "../audit/offline.ts";
import { counted, type ShownEvent, showAudited, showEvents, shownEvent } from "../audit/report.ts";
import { coldSource } from "../cold/cold-history.ts";
import { type ColdOptions, ColdPlace } from "../cold/cold-place.ts";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, parseCount, runId } from "../context.ts";
import { CommandError, type ExitCode, exit, UsageError } from "../failure.ts";
import type { Output } from "../output.ts";
import type { Remote } from "../remote.ts";
import { visible } from "../terminal.ts";

export interface AuditOptions extends GlobalOptions, ColdOptions {
  readonly proof?: string;
  readonly seq?: string;
  readonly saveRoot?: string;
  readonly root?: string;
  readonly data?: string;
  readonly schedule?: boolean;
  readonly channel?: boolean;
  readonly key?: boolean;
}

export async function audit(context: Context, options: AuditOptions, run: string | undefined): Promise<ExitCode> {
  if (options.seq !== undefined && options.proof === undefined)
    throw new UsageError("Cannot use --seq without --proof: it says which event to prove");
  if (options.data !== undefined && options.objectStore !== undefined)
    throw new UsageError("Cannot audit both --data and --object-store: want one of them");
  if (options.cluster !== undefined && options.objectStore === undefined)
    throw new UsageError("Cannot use --cluster without --object-store: it says whose objects to read there");
  if (run === undefined && options.data === undefined) {
    throw new UsageError("Cannot audit: no run was named", {
      next: "name one, as in `hop audit default:wf_…`, or check a data folder with --data",
    });
  }
  const kind = kindOf(options);
  if (kind !== "run" && (options.data !== undefined || options.objectStore !== undefined))
    throw new UsageError(`Cannot use --${kind} with --data or --object-store: its history is asked of a server`);
  if (options.data !== undefined) return auditFolder(context, options, options.data, run);
  if (options.objectStore !== undefined) {
    await using place = await ColdPlace.open(options, context.env);
    return await auditRun(context, options, coldSource(place, runId(run as string, options, context.env)));
  }
  return withRemote(context, options, (remote) =>
    auditRun(context, options, remoteSource(remote, runId(run as string, options, context.env), kind)),
  );
}

const partitions = { run: runPartition, schedule: schedulePartition, channel: channelPartition, key: keyPartition };
type Kind = keyof typeof partitions;

function kindOf({ schedule = false, channel = false, key = false }: AuditOptions): Kind {
  if (Number(schedule) + Number(channel) + Number(key) > 1)
    throw new UsageError("Cannot audit more than one of --schedule, --channel and --key at once: want one of them");
  return schedule ? "schedule" : channel ? "channel" : key ? "key" : "run";
}

/** The history of a run, a schedule, a channel or a key as the server hands it out. */
function remoteSource(remote: Remote, run: RunId, kind: Kind): HistorySource {
  let head: { size: number; peaks: Uint8Array } | undefined;
  return {
    partition: partitions[kind](run),
    async *events() {
      for await (const chunk of remote.history({ run, schedule: kind === "schedule", channel: kind === "channel", key: kind === "key" })) {
        if (chunk.size > 0) head = { size: chunk.size, peaks: chunk.peaks };
        yield chunk.event;
      }
    },
    blob: (sha256) => remote.blob(sha256),
    claimed: async () => {
      if (head === undefined) throw new AuditError(`The server ended the history of ${run} without saying what it comes to`);
      // Of a key nothing but its history is there to ask for.
      if (kind === "key") return head;
      const state = await stateOf(remote, run, kind);
      // A run that has gone on since then has another last event.
      return state.size === head.size ? { ...head, lastHash: state.lastHash } : head;
    },
  };
}

function stateOf(remote: Remote, run: RunId, kind: keyof typeof partitions): Promise<DescribeReply> {
  if (kind === "channel") return remote.channels.describe(run);
  return kind === "schedule" ? remote.schedules.describe(run, { deleted: true }) : remote.describe(run);
}

async function auditRun(context: Context, options: AuditOptions, source: HistorySource): Promise<ExitCode> {
  const { output } = context;
  const saved = options.root === undefined ? undefined : await readRootFile(options.root);
  const seq = parseCount(options.seq, "seq", { min: 0, max: Number.MAX_SAFE_INTEGER });
  const audited = await auditedRun(output, source, seq);
  const { history } = audited;
  const checks =
    saved === undefined
      ? []
      : historyChecks(saved, { partition: source.partition, nodes: history.nodes, firstSeq: history.nodes.firstSeq }, hasher);
  const holds = checks.length === 0 || isVerified(checks);
  if (holds) await writeFiles(output, options, audited);
  showAudited(output, { partition: source.partition, history, events: audited.events, checks });
  if (holds) return exit.ok;
  const bad = checks.find((check) => !check.ok);
  if (saved !== undefined && saved.partition === source.partition && saved.size < history.nodes.firstSeq)
    throw new CommandError(exit.failed, `The history of ${source.partition} can't be compared with ${options.root}: ${bad?.detail}`, {
      next: "compare with a root that was saved when the run had ended, or later",
    });
  throw new AuditError(`The history of ${source.partition} is not the one whose root was kept in ${options.root}: ${bad?.detail}`);
}

interface Audited {
  readonly partition: string;
  readonly history: AuditedHistory;
  readonly events: readonly ShownEvent[];
  /** The event that was asked for, or the last one. */
  readonly chosen: AuditedEvent | undefined;
}

/** Checks the history. When it fails, what was in place before the fault is shown first. */
async function auditedRun(output: Output, source: HistorySource, seq: number | undefined): Promise<Audited> {
  const events: ShownEvent[] = [];
  let chosen: AuditedEvent | undefined;
  const progress = output.progress();
  try {
    const history = await auditHistory(source, (event) => {
      events.push(shownEvent(event));
      if (seq === undefined || event.event.seq === seq) chosen = event;
      progress.update(`${events.length} events checked`);
    });
    progress.done();
    return { partition: source.partition, history, events, chosen };
  } catch (error) {
    progress.done();
    if (error instanceof AuditError) showEvents(output, events);
    throw error;
  }
}

async function writeFiles(output: Output, options: AuditOptions, { partition, history, chosen }: Audited): Promise<void> {
  const { size, peaks, root } = history.head;
  if (options.proof !== undefined) {
    if (chosen === undefined) {
      const there = `the history has events ${history.nodes.firstSeq} to ${size - 1}`;
      throw new UsageError(
        `Cannot prove event ${options.seq}: ${there}${history.expired === undefined ? "" : "; retention took those before away"}`,
      );
    }
    const { seq } = chosen.event;
    const proof = inclusionProof(history.nodes, { seq, size });
    if ("reject" in proof) throw new UsageError(proof.message);
    await writeWhole(options.proof, proofFileText({ partition, event: chosen.bytes, proof, root }));
    const name = visible(options.proof);
    output.say(`Wrote the proof of event ${seq} to ${name}; check it with \`hop audit verify ${name}\``);
  }
  if (options.saveRoot !== undefined) {
    await writeWhole(options.saveRoot, savedRootText({ partition, size, peaks, root }));
    output.say(`Kept the root of ${counted(size, "event")} in ${visible(options.saveRoot)}; check against it with --root`);
  }
}

async function auditFolder(context: Context, options: AuditOptions, folder: string, run: string | undefined): Promise<ExitCode> {
  const data = OfflineData.open(folder, (message) => context.output.warn(message));
  try {
    if (run !== undefined) return await auditRun(context, options, data.source(runId(run, options, context.env)));
    for (const [name, value] of [
      ["--proof", options.proof],
      ["--save-root", options.saveRoot],
      ["--root", options.root],
    ] as const) {
      if (value !== undefined) throw new UsageError(`Cannot use ${name} on a whole folder: name the run it is for`);
    }
    return await auditAll(context, data);
  } finally {
    data.close();
  }
}

/** Every record, history and blob in the folder. */
async function auditAll({ output }: Context, data: OfflineData): Promise<ExitCode> {
  const progress = output.progress();
  let verdict: FolderVerdict;
  try {
    verdict = await data.audit((events) => progress.update(`${events} events checked`));
  } finally {
    progress.done();
  }
  const { partitions, records, events, blobs, torn } = verdict;
  output.list(partitions, {
    columns: [
      { title: "HISTORY", value: (one) => one.partition, shrink: true },
      { title: "EVENTS", value: (one) => String(one.size), align: "right" },
      { title: "ROOT", value: (one) => one.root },
    ],
    id: (one) => one.partition,
    json: (one) => one,
    empty: "No histories",
  });
  output.say(
    `${output.paintErr("green", "✓")} ${counted(records, "record")}, ${counted(events, "event")} in ${partitions.length} histories and ${counted(blobs, "blob")} hold`,
  );
  if (torn !== undefined)
    output.warn(
      `${torn.bytes} bytes from byte ${torn.offset} of ${torn.file} on are no whole record: a write that a crash interrupted, and that was never acknowledged`,
    );
  return exit.ok;
}
