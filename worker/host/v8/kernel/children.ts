/**
 * Runs that a run starts. An operation spawns one; what came of its start, and later how it ended, are
 * told as two answers to that operation, in this order. Waiting for either is no operation: whoever
 * waits is interrupted by what cancels its scope, and may wait again.
 */
import type { ChildStart, SpawnSettings } from "#sdk/runtime";
import { CancelledError } from "#sdk/runtime";
import { utf8Bytes, wholeMs } from "#sdk/runtime/checks";
import type { Engine } from "#sdk/runtime/engine";
import { workflowMark } from "#sdk/runtime/workflow";
import { fieldEnd, record, recordEnd, type WireFailure, type WireSpawn } from "../protocol.ts";
import { toRunError } from "./failure.ts";
import { actingRun, fullAddress, intercept, nextOp, pend, throwMade } from "./operations.ts";
import { fromJson, toJson } from "./payload.ts";
import type { Run } from "./run.ts";
import { cancelledBy, currentScope, reaches, type Scope, takeCancellation } from "./scope.ts";

type Settled = { readonly value: unknown } | { readonly makeError: () => Error };
/** What is waited for. */
type Part = "started" | "ended";

export interface Child {
  readonly op: number;
  /** `namespace:instance`. */
  readonly name: string;
  /** It was spawned in this scope: what cancels that may ask the child to cancel too. */
  readonly scope: Scope;
  readonly cancellation: NonNullable<SpawnSettings["cancellationType"]>;
  isAskedToCancel: boolean;
  started: Settled | undefined;
  ended: Settled | undefined;
}

export interface ChildWait {
  readonly child: Child;
  readonly part: Part;
  readonly scope: Scope;
  /** Among operations: behind the last one before it. */
  readonly order: number;
  resolve(value: unknown): void;
  reject(makeError: () => Error): void;
}

export const isWorkflow = (value: unknown): boolean => typeof value === "function" && workflowMark in value;

export const childOperations: Pick<Engine, "spawn"> = {
  spawn(workflow, input, settings) {
    const run = actingRun("spawn()");
    const type = typeOf(run, workflow);
    const json = toJson(input, `Input of workflow "${type}"`);
    const to = settings.instance === undefined ? undefined : fullAddress(run, settings.instance);
    if (to === run.name) throw new TypeError(`A run can't spawn itself: spawn() names instance "${settings.instance}" in ${to}`);
    const cancelled = takeCancellation(run);
    if (cancelled !== undefined) throw cancelled;
    // Of a run that has ended, nothing is started, and nothing ever comes of it.
    const op = run.ended ? 0 : nextOp(run, json.length);
    const name = to ?? ownName(run, op);
    const cancellation = settings.cancellationType ?? "try-cancel";
    const child: Child = { op, name, scope: currentScope(run), cancellation, isAskedToCancel: false, started: undefined, ended: undefined };
    if (op > 0) {
      run.out += [record.spawn, op, name, type, wireOf(run, { type, name }, settings), json].join(fieldEnd) + recordEnd;
      run.children.set(op, child);
    }
    return handleOf(child);
  },
};

function typeOf(run: Run, workflow: unknown): string {
  if (typeof workflow === "string") return workflow;
  const type = Object.keys(run.exports).find((name) => run.exports[name] === workflow);
  if (type !== undefined) return type;
  throw new TypeError("spawn() takes a workflow that the run's own main module exports, or the name of a deployed one");
}

const namespaceOf = (address: string) => address.slice(0, address.indexOf(":"));
const nameBytesMax = 200;

/** Of a child that nobody named: the same whenever the run is rebuilt, and no other child's. */
function ownName(run: Run, op: number): string {
  const colon = run.name.indexOf(":");
  const instance = `wf_${run.name.slice(colon + 1)}_${run.generation}.${op}`;
  const short = utf8Bytes(instance) <= nameBytesMax ? instance : `wf_${hashOf(instance, 1)}${hashOf(instance, 2)}_${run.generation}.${op}`;
  return `${run.name.slice(0, colon)}:${short}`;
}

/** 64 bits of FNV-1a in hex. */
function hashOf(text: string, seed: number): string {
  let hash = 0xcbf29ce484222325n ^ BigInt(seed);
  for (let i = 0; i < text.length; i++) hash = BigInt.asUintN(64, (hash ^ BigInt(text.charCodeAt(i))) * 0x100000001b3n);
  return hash.toString(16).padStart(16, "0");
}

const policies = { terminate: 1, cancel: 2, abandon: 3 } as const;

function wireOf(run: Run, { type, name }: { readonly type: string; readonly name: string }, settings: SpawnSettings): string {
  const isOwn = Object.hasOwn(run.exports, type) && isWorkflow(run.exports[type]) && namespaceOf(name) === namespaceOf(run.name);
  const fields: WireSpawn = [
    settings.contention ?? "attach",
    settings.overrideReason ?? "",
    settings.idempotencyKey ?? "",
    wholeMs(settings.deadlineMs ?? 0),
    wholeMs(settings.requestBudgetMs ?? 0),
    policies[settings.parentClosePolicy ?? "terminate"],
    isOwn,
  ];
  return JSON.stringify(fields);
}

function handleOf(child: Child) {
  const { name, op } = child;
  return {
    run: name,
    started: () => wait(child, "started") as Promise<ChildStart>,
    result: () => wait(child, "ended"),
    signal(signalName: string, payload: unknown): Promise<void> {
      const run = actingRun("ChildHandle.signal()");
      const json = toJson(payload, `Payload of signal "${signalName}"`);
      const instead = intercept(run);
      if (instead !== undefined) return instead;
      const sent = nextOp(run, json.length);
      run.emit(record.signalChild, sent, name, op, signalName, json);
      return pend(run, sent, "send", name) as Promise<void>;
    },
    cancel(reason: string): Promise<void> {
      const run = actingRun("ChildHandle.cancel()");
      return intercept(run) ?? (ask(run, child, reason, "send") as Promise<void>);
    },
  };
}

function ask(run: Run, child: Child, reason: string, kind: "send" | "notice"): Promise<unknown> {
  // A cancellation reaches all children, however many operations are open.
  const op = kind === "notice" ? ++run.ops : nextOp(run, 0);
  run.emit(record.cancelRun, op, child.name, child.op, JSON.stringify(reason));
  child.isAskedToCancel = true;
  return pend(run, op, kind, child.name);
}

/** Children of a scope that is cancelled are asked to cancel, as their spawner chose. */
export function askChildren(run: Run, scope: Scope, reason: string): void {
  for (const child of run.children.values()) {
    if (child.cancellation === "abandon" || child.isAskedToCancel || child.ended !== undefined || !reaches(scope, child.scope)) continue;
    // It may have ended just now: nobody is to be told.
    ask(run, child, reason, "notice").catch(() => {});
  }
}

function wait(child: Child, part: Part): Promise<unknown> {
  const run = actingRun(part === "started" ? "ChildHandle.started()" : "ChildHandle.result()");
  const instead = intercept(run);
  if (instead !== undefined) return instead;
  const waited = new Promise((resolve, reject) => {
    const one: ChildWait = { child, part, scope: currentScope(run), order: run.ops + 0.5, resolve, reject };
    run.childWaits.add(one);
    if (child[part] !== undefined) settle(run, one, child[part]);
  });
  return waited.then(undefined, throwMade);
}

function settle(run: Run, one: ChildWait, settled: Settled): void {
  run.childWaits.delete(one);
  if ("value" in settled) one.resolve(settled.value);
  else one.reject(settled.makeError);
}

function conclude(run: Run, child: Child, part: Part, settled: Settled): void {
  child[part] = settled;
  if (part === "ended") run.children.delete(child.op);
  for (const one of [...run.childWaits]) if (one.child === child && one.part === part) settle(run, one, settled);
}

export function childResolved(run: Run, child: Child, text: string): void {
  if (child.started === undefined) {
    conclude(run, child, "started", { value: Object.freeze(fromJson(text, `Start of run "${child.name}"`)) });
    return;
  }
  try {
    conclude(run, child, "ended", { value: fromJson(text, `Result of run "${child.name}"`) });
  } catch (error) {
    conclude(run, child, "ended", { makeError: () => error as Error });
  }
}

export function childRejected(run: Run, child: Child, failure: WireFailure): void {
  if (child.started === undefined) {
    const settled = { makeError: () => toRunError(child.name, failure.message, failure) };
    conclude(run, child, "started", settled);
    conclude(run, child, "ended", settled);
    return;
  }
  const by = child.isAskedToCancel && failure.type === "CancelledError" ? cancelledBy(child.scope) : undefined;
  const makeError =
    by !== undefined
      ? () => new CancelledError(by.reason)
      : () => toRunError(child.name, `Run "${child.name}" did not complete: ${failure.message}`, failure);
  conclude(run, child, "ended", { makeError });
}
