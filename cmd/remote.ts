/**
 * What commands ask of a server, message by message, and how a run's end is shown.
 *
 * Bytes that come with a hash are hashed again before they are used.
 */
import { bytesEqual, HopError, toHex } from "#core/base";
import {
  type CallReply,
  type CallRequestInit,
  type ChannelCommandInit,
  type ChannelReply,
  type Deployment,
  type DeployReply,
  type DeployRequestInit,
  type DescribeReply,
  type HistoryChunk,
  type HistoryRequestInit,
  type ListDeploymentsReply,
  type ListReply,
  type ListRequestInit,
  type Outcome,
  type Payload,
  type QueryReply,
  type QueryRequestInit,
  type ResultReply,
  type ResultRequestInit,
  type ResumeReply,
  type ResumeRequestInit,
  type RouteRequestInit,
  RunStatus,
  type SignalReply,
  type SignalRequestInit,
  type StartReply,
  type StartRequestInit,
  type StreamItem,
  type StreamRequestInit,
} from "#proto";
import type { ChannelClient, ClusterClient, ScheduleClient } from "#sdk/client";
import { sha256 } from "./audit/hasher.ts";
import { failureText } from "./event-text.ts";
import { type ExitCode, exit } from "./failure.ts";
import type { Output } from "./output.ts";
import { outcomeJson } from "./shapes.ts";
import { statusWord } from "./status.ts";
import { safeText, visible, visibleLines } from "./terminal.ts";

/** Rejects with errors that carry a `reason`. */
export interface Remote {
  readonly address: string;
  /** For those who run the cluster. */
  readonly cluster: ClusterClient;
  readonly schedules: ScheduleClient;
  readonly channels: ChannelClient;
  /** Over the stream that requests share. */
  sendToChannel(command: ChannelCommandInit): Promise<ChannelReply>;
  /** Why requests wait, where something is in their way. */
  waitedFor(): string | undefined;
  /** Starts, over one stream that many starts share. */
  start(request: StartRequestInit): Promise<StartReply>;
  result(request: ResultRequestInit): Promise<ResultReply>;
  signal(request: SignalRequestInit): Promise<SignalReply>;
  query(request: QueryRequestInit): Promise<QueryReply>;
  call(request: CallRequestInit): Promise<CallReply>;
  cancel(run: string, reason: string): Promise<void>;
  terminate(run: string, reason: string): Promise<void>;
  pause(run: string, reason: string): Promise<void>;
  unpause(run: string, reason: string): Promise<void>;
  /** `letter`: number@namespace:instance. */
  replayDeadLetter(letter: string): Promise<void>;
  dropDeadLetter(letter: string, reason: string): Promise<void>;
  resume(request: ResumeRequestInit): Promise<ResumeReply>;
  list(request: ListRequestInit): Promise<ListReply>;
  describe(run: string): Promise<DescribeReply>;
  history(request: HistoryRequestInit): AsyncIterable<HistoryChunk>;
  stream(request: StreamRequestInit): AsyncIterable<StreamItem>;
  deploy(request: DeployRequestInit): Promise<DeployReply>;
  routeDeployment(request: RouteRequestInit): Promise<Deployment>;
  listDeployments(namespace: string): Promise<ListDeploymentsReply>;
  /** Bytes as the server sent them. */
  blob(sha256: Uint8Array): Promise<Uint8Array>;
  close(): void;
}

/** A payload's bytes, fetched and checked where it is a blob. */
export async function payloadBytes(remote: Remote, payload: Payload | undefined): Promise<Uint8Array> {
  if (payload?.ref === undefined) return payload?.data ?? new Uint8Array(0);
  const { sha256: want } = payload.ref;
  const bytes = await remote.blob(want);
  const got = sha256(bytes);
  if (bytesEqual(got, want)) return bytes;
  throw new HopError("HASH_MISMATCH", `Cannot use blob ${toHex(want)}: its bytes hash to ${toHex(got)}`);
}

/** A payload on standard output, as its JSON text stands in history. */
export function showPayload(output: Output, bytes: Uint8Array): void {
  output.line(bytes.length === 0 ? "null" : safeText(new TextDecoder().decode(bytes)));
}

export interface EndedRun {
  readonly run: string;
  readonly generation: number;
  readonly outcome: Outcome;
}

/**
 * The result on standard output, a failure on standard error. For `json` and `jsonl` all of it is
 * data. Returns the exit code: 0 only for a run that completed.
 */
export async function showOutcome(output: Output, remote: Remote, ended: EndedRun): Promise<ExitCode> {
  const { run, generation, outcome } = ended;
  const isCompleted = outcome.status === RunStatus.completed;
  const bytes = isCompleted ? await payloadBytes(remote, outcome.result) : undefined;
  if (output.format === "ids") output.line(run);
  else if (!output.isForPeople) output.json({ run, generation, ...outcomeJson(outcome, bytes) });
  else if (bytes !== undefined) showPayload(output, bytes);
  if (isCompleted) return exit.ok;
  if (output.isForPeople || output.format === "ids")
    output.say(`${output.paintErr("red", "error:")} ${visible(run)} ${outcomeText(outcome)}`);
  return exit.failed;
}

/** How a run ended, or stands, in words: `failed: TypeError: x is undefined`. */
export function outcomeText(outcome: Outcome): string {
  const word = statusWord(outcome.status)
    .replace("timed_out", "ran out of time")
    .replace("cancelled", "was cancelled")
    .replace("terminated", "was terminated");
  return outcome.failure === undefined ? word : `${word}: ${visibleLines(failureText(outcome.failure))}`;
}
