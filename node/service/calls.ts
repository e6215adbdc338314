/**
 * Client requests on their way to a shard: checked, their payloads admitted, routed, and their
 * replies turned into messages. Unary calls and sessions share it.
 */
import type { Reply, RunAddress } from "#core/base";
import { HopError, namespaceOf, runPartition, unreachable } from "#core/base";
import { type Command, ticketOf } from "#core/shard";
import type {
  ChannelCommand,
  ClientItem,
  DropDeadLetterRequest,
  Identity,
  PauseRequest,
  ReplayDeadLetterRequest,
  ReplyItemInit,
  ResumeRequest,
  ScheduleCommand,
  TerminateRequest,
  UnpauseRequest,
} from "#proto";
import type { Router } from "../cluster/router.ts";
import { checkChannel, messagesOf, sendOf } from "./channels.ts";
import { after } from "./long-timer.ts";
import type { PayloadEdge } from "./payloads.ts";
import { startReplyOf, stateOf } from "./queued-starts.ts";
import { checkSchedule, inputOf } from "./schedules.ts";
import { asHopError, toDetail } from "./status.ts";
import {
  checkCall,
  checkCancel,
  checkDropLetter,
  checkPause,
  checkQuery,
  checkReplayLetter,
  checkResult,
  checkResume,
  checkSignal,
  checkStart,
  checkTerminate,
} from "./validate.ts";

/** Who asks, and the shard-map epoch it routed by (0: it keeps no map). */
export interface Caller {
  readonly identity: Identity;
  readonly epoch: number;
}

/** What the edge has to know of deployments. */
export interface Deployments {
  /** On which bundle a start of `run` begins; without one, that of the type's current version. */
  bundle(namespace: string, of: { readonly type: string; readonly run?: string }): Uint8Array | undefined;
  /** Types deployed in a namespace, in alphabetical order. */
  types(namespace: string): string[];
  /** Learns of what was deployed through other nodes until now. Rejects with `HopError` where that can't be known. */
  refresh(): Promise<void>;
}

/** A checked request. `ready` is undefined where nothing has to be stored or looked up first; `command` is whole after it. */
export interface Prepared {
  command: Command;
  readonly ready: Promise<void> | undefined;
  /** Longest wait for a result in milliseconds; 0 = as long as it takes. */
  readonly waitMs: number;
}

/** A request by kind, as a session carries it; what operators do comes call by call only. */
type Asked =
  | (ClientItem extends infer Item
      ? Item extends { kind: infer Kind; value: infer Value }
        ? { readonly kind: Kind; readonly value: Value }
        : never
      : never)
  | { readonly kind: "terminate"; readonly value: TerminateRequest }
  | { readonly kind: "pause"; readonly value: PauseRequest }
  | { readonly kind: "unpause"; readonly value: UnpauseRequest }
  | { readonly kind: "replay-letter"; readonly value: ReplayDeadLetterRequest }
  | { readonly kind: "drop-letter"; readonly value: DropDeadLetterRequest };

const typesShownMax = 10;

export class Calls {
  private readonly router: Router;
  private readonly edge: PayloadEdge;
  private readonly deployments: Deployments;

  constructor(parts: { readonly router: Router; readonly edge: PayloadEdge; readonly deployments: Deployments }) {
    this.router = parts.router;
    this.edge = parts.edge;
    this.deployments = parts.deployments;
  }

  /** Throws `HopError` where the request is refused at once. */
  prepare(item: Asked): Prepared {
    switch (item.kind) {
      case "start":
        return this.prepareStart(checkStart(item.value));
      case "channel":
        return this.prepareChannel(item.value);
      case "signal": {
        if (item.value.channel !== "") return this.prepareChannel(sendOf(item.value));
        const command = checkSignal(item.value);
        return { command, ready: this.edge.admit([command.payload]), waitMs: 0 };
      }
      case "query": {
        const command = checkQuery(item.value);
        this.edge.checkPassing(command.input);
        return { command, ready: undefined, waitMs: 0 };
      }
      case "call": {
        const command = checkCall(item.value);
        return { command, ready: this.edge.admit([command.input]), waitMs: 0 };
      }
      case "result":
        return { command: checkResult(item.value), ready: undefined, waitMs: item.value.waitMs };
      case "cancel":
        return { command: checkCancel(item.value), ready: undefined, waitMs: 0 };
      case "terminate":
        return { command: checkTerminate(item.value), ready: undefined, waitMs: 0 };
      case "pause":
      case "unpause":
        return { command: checkPause(item.kind, item.value), ready: undefined, waitMs: 0 };
      case "replay-letter":
        return { command: checkReplayLetter(item.value), ready: undefined, waitMs: 0 };
      case "drop-letter":
        return { command: checkDropLetter(item.value), ready: undefined, waitMs: 0 };
      default:
        return unreachable(item);
    }
  }

  private prepareStart(draft: ReturnType<typeof checkStart>): Prepared {
    const isPinned = draft.bundle.length > 0;
    const bundle = isPinned ? draft.bundle : this.deployments.bundle(draft.namespace, draft);
    const admitted = this.edge.admit([draft.input, draft.signal?.payload]);
    if (bundle === undefined) return this.prepareUnknown(draft, admitted);
    const known = isPinned ? this.edge.requireBlob(bundle, `Cannot start ${draft.run} on the bundle it names`) : undefined;
    const ready = admitted === undefined ? known : Promise.all([admitted, known]).then(() => {});
    return { command: { ...draft, bundle }, ready, waitMs: 0 };
  }

  /** A type that is not known here may have been deployed through another node just now. */
  private prepareUnknown(draft: ReturnType<typeof checkStart>, admitted: Promise<void> | undefined): Prepared {
    const find = async (): Promise<void> => {
      await Promise.all([this.deployments.refresh(), admitted]);
      prepared.command = { ...draft, bundle: this.current(draft.namespace, draft, `Cannot start ${draft.run}`) };
    };
    const prepared: Prepared = { command: draft, ready: find(), waitMs: 0 };
    return prepared;
  }

  prepareSchedule(m: ScheduleCommand): Prepared {
    const command = checkSchedule(m);
    return { command, ready: this.edge.admit([inputOf(command.ask)]), waitMs: 0 };
  }

  prepareChannel(m: ChannelCommand): Prepared {
    const command = checkChannel(m);
    return { command, ready: this.edge.admit(messagesOf(command.ask)), waitMs: 0 };
  }

  /** Chooses the bundle that a blocked run goes on with. Rejects with `HopError`. */
  async prepareResume(m: ResumeRequest): Promise<Prepared> {
    const command = checkResume(m);
    if (command.bundle.length > 0) {
      await this.edge.requireBlob(command.bundle, `Cannot resume ${command.run} on the bundle it names`);
      return { command, ready: undefined, waitMs: 0 };
    }
    const summary = (await this.router.describe(runPartition(command.run)))?.summary;
    if (summary === undefined) throw new HopError("RUN_NOT_FOUND", `Cannot resume ${command.run}: there is no such run`);
    if (m.newest) await this.deployments.refresh();
    const bundle = m.newest
      ? this.current(namespaceOf(command.run), { type: summary.type }, `Cannot resume ${command.run}`)
      : summary.bundle;
    return { command: { ...command, bundle }, ready: undefined, waitMs: 0 };
  }

  private current(namespace: string, of: { readonly type: string; readonly run?: string }, doing: string): Uint8Array {
    const bundle = this.deployments.bundle(namespace, of);
    if (bundle !== undefined) return bundle;
    throw new HopError("WORKFLOW_NOT_DEPLOYED", `${doing}: ${this.missing(namespace, of.type)}`);
  }

  private missing(namespace: string, type: string): string {
    const types = this.deployments.types(namespace);
    const more = types.length > typesShownMax ? ` and ${types.length - typesShownMax} more` : "";
    const known = types.length === 0 ? "nothing is deployed there" : `deployed are ${types.slice(0, typesShownMax).join(", ")}${more}`;
    return `workflow ${JSON.stringify(type)} is not deployed in namespace ${namespace}, ${known}; deploy it with \`hop deploy FILE\` or \`hop dev FILE\``;
  }

  /**
   * Hands the command to its shard. `done` is called exactly once, perhaps before this returns,
   * unless the returned function is called first: then the caller no longer waits.
   */
  issue(caller: Caller, prepared: Prepared, done: (reply: Reply) => void): () => void {
    const { command, waitMs } = prepared;
    if (waitMs === 0) return this.router.command(caller, command, done);
    let isAnswered = false;
    let stopTimer = () => {};
    const forget = this.router.command(caller, command, (reply) => {
      isAnswered = true;
      stopTimer();
      done(reply);
    });
    if (isAnswered) return forget;
    let isForgotten = false;
    stopTimer = after(waitMs, () => {
      forget();
      void this.present({ run: command.run, ticket: ticketOf(command) }).then((reply) => {
        if (!isForgotten) done(reply);
      });
    });
    return () => {
      isForgotten = true;
      stopTimer();
      forget();
    };
  }

  /** How a run stands, as the answer to a wait that is over before the run is. */
  private async present(address: RunAddress): Promise<Reply> {
    const { run } = address;
    try {
      const state = await this.router.describe(runPartition(run));
      const summary = state === undefined ? undefined : stateOf(state, address).summary;
      if (summary === undefined) throw new HopError("RUN_NOT_FOUND", `Cannot wait for ${run}: there is no such run`);
      const outcome = { status: summary.status, result: undefined, failure: undefined };
      return { kind: "outcome", outcome, generation: summary.generation };
    } catch (error) {
      const { reason, message, retryAfterMs } = asHopError(error);
      return { kind: "rejected", rejection: { reject: reason, message, retryAfterMs } };
    }
  }
}

/** The reply item of a session; unary calls take its value. */
export function replyItem(request: number, reply: Reply): ReplyItemInit {
  switch (reply.kind) {
    case "started":
      return {
        request,
        kind: "start",
        value: startReplyOf(reply),
      };
    case "signalled":
      return { request, kind: "signal", value: { seq: reply.seq } };
    case "channelled":
      return { request, kind: "channel", value: reply.answer };
    case "outcome":
      return { request, kind: "result", value: { outcome: reply.outcome, generation: reply.generation } };
    case "queried":
      return { request, kind: "query", value: { result: reply.result } };
    case "called": {
      const { result, failure, rejected, seq } = reply;
      return { request, kind: "call", value: { result, failure, rejected, seq } };
    }
    case "done":
      return { request, kind: "cancel", value: {} };
    case "rejected":
      return { request, kind: "error", value: toDetail(reply.rejection) };
    case "resumed":
    case "scheduled":
    case "enveloped":
      return errorItem(request, new HopError("INTERNAL", `A session has no request that is answered with ${reply.kind}`));
    default:
      return unreachable(reply);
  }
}

export function errorItem(request: number, error: unknown): ReplyItemInit {
  return { request, kind: "error", value: toDetail(asHopError(error)) };
}
