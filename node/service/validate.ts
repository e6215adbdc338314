/**
 * Client message → branded command, or the reason it is not one.
 *
 * Every check throws `HopError` BAD_REQUEST whose message names the request, the field, the value
 * and the rule. Names are never altered: what passes is carried through byte for byte.
 */
import type { RunId } from "#core/base";
import { HopError, limits, nameProblem, namespaceProblem, parseAddress, type RunAddress, utf8Bytes } from "#core/base";
import type { Route } from "#core/placement";
import { contentions } from "#core/run";
import type { Command } from "#core/shard";
import type {
  CallRequest,
  CancelRequest,
  DeployRequest,
  DropDeadLetterRequest,
  ListRequest,
  PauseRequest,
  QueryRequest,
  ReplayDeadLetterRequest,
  ResultRequest,
  ResumeRequest,
  RouteRequest,
  SignalRequest,
  StartRequest,
  StartSignal,
  TerminateRequest,
  UnpauseRequest,
} from "#proto";
import { runStatusNames } from "#proto";
import { filterOf } from "#store";
import { derivedInstance, freshId, freshInstance } from "./run-names.ts";

type Of<Kind extends Command["kind"]> = Extract<Command, { kind: Kind }>;

/** A start whose bundle is not chosen yet: `bundle` is empty unless the caller pinned one. */
export type StartDraft = Of<"start"> & { readonly namespace: string };

const shownCharsMax = 64;
const hashBytes = 32;
const listLimitMax = 1000;
const listLimitDefault = 100;
const deployedTypesMax = 1000;

/** A value as a message shows it: quoted, escaped, cut. */
function shown(value: string): string {
  const text = value.length > shownCharsMax ? `${value.slice(0, shownCharsMax)}…` : value;
  return JSON.stringify(text);
}

export function bad(doing: string, field: string, rule: string): HopError {
  return new HopError("BAD_REQUEST", `Cannot ${doing}: field "${field}" ${rule}`);
}

export function checkName(doing: string, field: string, value: string): string {
  const problem = nameProblem(value);
  if (problem === undefined) return value;
  throw bad(doing, field, `is ${shown(value)}, which ${problem}; want 1–${limits.nameBytesMax} bytes of text without control characters`);
}

export function checkNamespace(doing: string, value: string): string {
  const problem = namespaceProblem(value);
  if (problem === undefined) return value;
  throw bad(doing, "namespace", `is ${shown(value)}, which ${problem}; want for example "default"`);
}

/** `namespace:instance`, or with a ticket before it, as a command's target. */
export function checkAddress(doing: string, value: string, field = "run"): RunAddress {
  const address = parseAddress(value);
  if ("run" in address) return address;
  throw bad(doing, field, `is ${shown(value)}, which ${address.problem}; want namespace:instance, for example "default:order-1"`);
}

export function checkText(doing: string, field: string, value: string): string {
  const bytes = utf8Bytes(value);
  if (bytes > limits.textBytesMax) throw bad(doing, field, `has ${bytes} bytes, want at most ${limits.textBytesMax}`);
  if (!value.isWellFormed()) throw bad(doing, field, "is not well-formed Unicode");
  return value;
}

export function checkMs(doing: string, field: string, value: number): number {
  if (value > limits.timerMsMax) throw bad(doing, field, `is ${value} ms, want at most ${limits.timerMsMax} ms (100 years)`);
  return value;
}

function checkHash(doing: string, field: string, value: Uint8Array): Uint8Array {
  if (value.length === 0 || value.length === hashBytes) return value;
  throw bad(doing, field, `has ${value.length} bytes, want the ${hashBytes} of a SHA-256, or none`);
}

export function checkStart(m: StartRequest): StartDraft {
  const doing = "start a run";
  const namespace = checkNamespace(doing, m.namespace);
  const type = checkName(doing, "type", m.type);
  if (m.idempotencyKey !== "") checkName(doing, "idempotency_key", m.idempotencyKey);
  return {
    kind: "start",
    namespace,
    run: `${namespace}:${instanceOf(m, doing)}` as RunId,
    type,
    bundle: checkHash(doing, "bundle", m.bundle),
    input: m.input,
    idempotencyKey: m.idempotencyKey,
    deadlineMs: checkMs(doing, "deadline_ms", m.deadlineMs),
    budgetMs: checkMs(doing, "request_budget_ms", m.requestBudgetMs),
    ...checkContention(m, doing),
    awaitResult: m.awaitResult,
    signal: m.signal && checkStartSignal(m.signal, doing),
  };
}

function checkStartSignal({ name, payload, id }: StartSignal, doing: string): StartDraft["signal"] {
  if (id !== "") checkName(doing, "signal.id", id);
  return { name: checkName(doing, "signal.name", name), payload, id: id === "" ? freshId("signal") : id };
}

function checkContention(m: StartRequest, doing: string): Pick<StartDraft, "contention" | "overrideReason"> {
  const contention = m.contention === "" ? "attach" : contentions.find((one) => one === m.contention);
  if (contention === undefined) {
    throw bad(doing, "contention", `is ${shown(m.contention)}, want one of ${contentions.map((one) => `"${one}"`).join(", ")}`);
  }
  const overrideReason = checkText(doing, "override_reason", m.overrideReason);
  if (contention === "supersede" && overrideReason.trim() === "") {
    throw bad(doing, "override_reason", "is empty, want why the live run is to be ended: it is kept in that run's history");
  }
  if (contention !== "supersede" && overrideReason !== "") {
    throw bad(doing, "override_reason", `is given with contention ${shown(contention)}, want it with "supersede" only`);
  }
  return { contention, overrideReason };
}

function instanceOf(m: StartRequest, doing: string): string {
  if (m.instance !== "") return checkName(doing, "instance", m.instance);
  return m.idempotencyKey === "" ? freshInstance() : derivedInstance(m);
}

export function checkSignal(m: SignalRequest): Of<"signal"> {
  const doing = "send a signal";
  const address = checkAddress(doing, m.run);
  if (m.id !== "") checkName(doing, "id", m.id);
  return { kind: "signal", ...address, name: checkName(doing, "name", m.name), payload: m.payload, id: m.id };
}

export function checkQuery(m: QueryRequest): Of<"query"> {
  const doing = "query a run";
  return { kind: "query", ...checkAddress(doing, m.run), name: checkName(doing, "name", m.name), input: m.input };
}

export function checkCall(m: CallRequest): Of<"call"> {
  const doing = "call a method";
  const address = checkAddress(doing, m.run);
  if (m.id !== "") checkName(doing, "id", m.id);
  return { kind: "call", ...address, name: checkName(doing, "name", m.name), input: m.input, id: m.id === "" ? freshId("call") : m.id };
}

export function checkResult(m: ResultRequest): Of<"await-result"> {
  const doing = "wait for a result";
  checkMs(doing, "wait_ms", m.waitMs);
  return { kind: "await-result", ...checkAddress(doing, m.run), generation: m.generation };
}

export function checkCancel(m: CancelRequest): Of<"cancel"> {
  const doing = "cancel a run";
  return { kind: "cancel", ...checkAddress(doing, m.run), reason: checkText(doing, "reason", m.reason) };
}

export function checkTerminate(m: TerminateRequest): Of<"terminate"> {
  const doing = "terminate a run";
  return { kind: "terminate", ...checkAddress(doing, m.run), reason: checkText(doing, "reason", m.reason) };
}

export function checkPause(kind: "pause" | "unpause", m: PauseRequest | UnpauseRequest): Extract<Command, { kind: "pause" | "unpause" }> {
  const doing = `${kind} a run`;
  return { kind, ...checkAddress(doing, m.run), reason: checkText(doing, "reason", m.reason) };
}

export function checkReplayLetter(m: ReplayDeadLetterRequest): Of<"replay-letter"> {
  return { kind: "replay-letter", ...checkLetter("replay a dead letter", m.letter) };
}

export function checkDropLetter(m: DropDeadLetterRequest): Of<"drop-letter"> {
  const doing = "drop a dead letter";
  const reason = checkText(doing, "reason", m.reason);
  if (reason.trim() === "") throw bad(doing, "reason", "is empty, want why it is not needed: it is kept in the run's history");
  return { kind: "drop-letter", ...checkLetter(doing, m.letter), reason };
}

function checkLetter(doing: string, text: string): Pick<Of<"replay-letter">, "run" | "letter"> {
  const { run, ticket: letter } = checkAddress(doing, text);
  if (letter === 0) throw bad(doing, "letter", `is ${shown(text)}, want number@namespace:instance, as a list of dead letters has it`);
  return { run, letter };
}

/** `bundle` is empty where the run keeps the one it is pinned to or takes the newest. */
export function checkResume(m: ResumeRequest): Of<"resume"> {
  const doing = "resume a run";
  const bundle = checkHash(doing, "bundle", m.bundle);
  if (m.newest && bundle.length > 0) throw bad(doing, "newest", `is set together with "bundle", want one of them`);
  return { kind: "resume", ...checkAddress(doing, m.run), bundle };
}

/** Checks a list request; 0 rows asked for means the default of 100. */
export function checkList(m: ListRequest): ListRequest {
  const doing = "list runs";
  if (m.namespace !== "") checkNamespace(doing, m.namespace);
  if (m.type !== "") checkName(doing, "type", m.type);
  if (m.status !== 0 && !(m.status in runStatusNames))
    throw bad(doing, "status", `is ${m.status}, want the RunStatus of a run (${Object.keys(runStatusNames).join(", ")}), or 0 for all`);
  if (m.limit > listLimitMax) throw bad(doing, "limit", `is ${m.limit}, want at most ${listLimitMax}`);
  checkText(doing, "page_token", m.pageToken);
  if (m.query !== "") filterOf(m.query);
  return { ...m, limit: m.limit === 0 ? listLimitDefault : m.limit };
}

export function checkDeploy(m: DeployRequest): DeployRequest {
  const doing = "deploy a bundle";
  checkNamespace(doing, m.namespace);
  if (m.code.length === 0) throw bad(doing, "code", "is empty");
  if (m.code.length > limits.payloadBytesMax) {
    throw new HopError("PAYLOAD_TOO_LARGE", `Cannot ${doing}: its code has ${m.code.length} bytes, want at most ${limits.payloadBytesMax}`);
  }
  if (m.types.length === 0) throw bad(doing, "types", "is empty: the bundle declares no workflow");
  if (m.types.length > deployedTypesMax) throw bad(doing, "types", `has ${m.types.length} names, want at most ${deployedTypesMax}`);
  for (const type of m.types) checkName(doing, "types", type);
  return m;
}

export function checkRoute(m: RouteRequest): { readonly namespace: string; readonly route: Route } {
  const doing = "route a deployment";
  const namespace = checkNamespace(doing, m.namespace);
  const route = { type: checkName(doing, "type", m.type), version: m.version, reason: checkText(doing, "reason", m.reason) };
  if (!m.ramp && m.percent > 0) throw bad(doing, "percent", `is ${m.percent} without "ramp", want both or none`);
  if (m.percent > 99) throw bad(doing, "percent", `is ${m.percent}, want 0 to 99; without "ramp" all starts go there`);
  return { namespace, route: m.ramp ? { ...route, percent: m.percent } : route };
}

export function checkBlobHash(sha256: Uint8Array): Uint8Array {
  if (sha256.length === hashBytes) return sha256;
  throw bad("read a blob", "sha256", `has ${sha256.length} bytes, want ${hashBytes}`);
}
