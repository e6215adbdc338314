/** The directives of shard scenarios. */
import { asRequestId } from "#core/base";
import { contentions } from "#core/run";
import { type ActivityOptionsInit, type CommandInit, CommandKind } from "#proto";
import type { Directive, Handle } from "../../datadriven.ts";
import { asRun, payload, ShardBench } from "./shard-bench.ts";

const bundle = (value: string) => new Uint8Array(32).fill(value === "" ? 1 : Number(value));
const statuses: Readonly<Record<string, number>> = { ok: 0, "not-cached": 1, diverged: 2, limit: 3, broken: 4, retry: 5 };

/** `activity reserve startToClose=100`, `timer 500`, `signal paid`, `withdraw 2`, `complete`, `fail E`, `cancelled`. */
function commandOf(line: string): CommandInit {
  const [op = "", what = "", name = "", ...rest] = /^\d/.test(line) ? line.split(/\s+/) : ["0", ...line.split(/\s+/)];
  const args = new Map(rest.map((word) => word.split("=") as [string, string]));
  switch (what) {
    case "activity":
      return { kind: CommandKind.activity, op: Number(op), name, payload: payload(args.get("input") ?? "{}"), options: optionsOf(args) };
    case "timer":
      return { kind: CommandKind.timer, op: Number(op), durationMs: Number(name) };
    case "signal":
      return { kind: CommandKind.awaitSignal, op: Number(op), name };
    case "send":
      return { kind: CommandKind.sendSignal, op: Number(op), to: name, name: rest[0] ?? "go", payload: payload("1") };
    case "await":
      return { kind: CommandKind.awaitResult, op: Number(op), to: name };
    case "searchable":
      return { kind: CommandKind.setSearchable, op: Number(op), name, searchable: rest.join(" ") };
    case "chunk":
      return { kind: CommandKind.yieldChunk, op: Number(op), payload: payload(name) };
    case "withdraw":
      return { kind: CommandKind.cancelOp, op: Number(name) };
    case "complete":
      return { kind: CommandKind.complete, payload: payload(`"done"`) };
    case "fail":
      return { kind: CommandKind.fail, failure: { type: name, message: "as told" } };
    case "cancelled":
      return { kind: CommandKind.cancelled, failure: { type: "CancelledError", message: "as asked" } };
    default:
      throw new Error(`Unknown command: ${line}`);
  }
}

function optionsOf(args: ReadonlyMap<string, string>): ActivityOptionsInit {
  const number = (name: string) => Number(args.get(name) ?? 0);
  return {
    retry: { attemptsMax: number("attempts"), initialMs: number("wait") || 100, backoffMilli: 2000 },
    startToCloseMs: number("startToClose"),
    scheduleToCloseMs: number("scheduleToClose"),
    heartbeatMs: number("heartbeat"),
    idempotencyKey: args.get("key") ?? "",
  };
}

const lines = (d: Directive) => d.input.split("\n").filter((line) => line !== "");

/** A fresh shard, and what each directive does to it. */
export function openShard(): Handle {
  const bench = new ShardBench();
  return (d) => verb(bench, d);
}

function verb(bench: ShardBench, d: Directive): string {
  const get = (name: string) => d.args.get(name) ?? "";
  const run = asRun(get("run"));
  const to = { run, ticket: Number(get("ticket") || 0) };
  switch (d.cmd) {
    case "start":
      return bench.command({
        kind: "start",
        run,
        type: get("type") || "order",
        bundle: bundle(get("bundle")),
        input: payload(get("input") || "1"),
        contention: contentions.find((one) => d.args.has(one)) ?? "attach",
        budgetMs: Number(get("budget") || 0),
        overrideReason: get("supersede"),
        idempotencyKey: get("key"),
        deadlineMs: Number(get("deadline") || 0),
        awaitResult: d.args.has("await"),
      });
    case "signal":
      return bench.command({ kind: "signal", ...to, name: get("name"), payload: undefined, id: get("id") });
    case "cancel":
      return bench.command({ kind: "cancel", ...to, reason: "not needed" });
    case "terminate":
      return bench.command({ kind: "terminate", ...to, reason: "wrong" });
    case "pause":
    case "unpause":
      return bench.command({ kind: d.cmd, ...to, reason: get("reason") });
    case "resume":
      return bench.command({ kind: "resume", ...to, bundle: get("bundle") === "" ? new Uint8Array(0) : bundle(get("bundle")) });
    case "result":
      return bench.command({ kind: "await-result", ...to, generation: Number(get("generation") || 0) });
    case "consume":
      return bench.command({ kind: "consume", run, generation: Number(get("generation") || 0) });
    case "gone":
      return bench.step({ kind: "request-gone", request: asRequestId(Number(get("request"))) });
    case "query":
      return bench.command({ kind: "query", ...to, name: get("name") || "state", input: undefined });
    case "describe":
      return bench.describe(run);
    case "activated":
      return bench.activated(run, {
        commands: lines(d).map(commandOf),
        status: statuses[get("status") || "ok"] ?? 0,
        problem: get("problem"),
      });
    case "flush":
      return bench.flush();
    case "deliver":
      return bench.deliver(d.args.has("twice"));
    case "lose":
      return bench.lose();
    case "answered":
      return bench.answered(get("refusal"));
    case "advance":
      return bench.advance(Number(get("ms")));
    case "crash":
      return bench.crash();
    case "clock-back":
      bench.nowMs -= Number(get("ms"));
      return "ok";
    case "checkpoint":
      return bench.checkpoint();
    case "evict":
      return bench.evict();
    default:
      return workerVerb(bench, d);
  }
}

function workerVerb(bench: ShardBench, d: Directive): string {
  const get = (name: string) => d.args.get(name) ?? "";
  const worker = get("worker");
  const [attempt = 1, delivery = 1] = (get("token") || "1.1").split(".").map(Number);
  const token = { run: get("run"), generation: Number(get("generation") || 1), op: Number(get("op") || 1), attempt, delivery };
  switch (d.cmd) {
    case "join": {
      const held = lines(d).map((line) => {
        const [, of = "", op = "1", which = "1.1"] = line.split(/\s+/);
        const [heldAttempt = 1, heldDelivery = 1] = which.split(".").map(Number);
        return { run: of, op: Number(op), attempt: heldAttempt, delivery: heldDelivery };
      });
      return bench.join(worker, {
        activities: (get("offers") || "reserve,charge,ship,refund").split(","),
        slots: Number(get("slots") || 10),
        held,
      });
    }
    case "leave": {
      const session = bench.session(worker);
      const out = bench.step({ kind: "worker-gone", session });
      bench.sessions.delete(worker);
      return out;
    }
    case "drain":
      return bench.step({ kind: "draining", session: bench.session(worker) });
    case "done":
    case "failed": {
      const outcome =
        d.cmd === "done"
          ? { result: payload(get("result") || "1") }
          : { failure: { type: get("type") || "Error", message: "as told", nonRetryable: d.args.has("final") } };
      const item = bench.fromWorker(worker, { kind: "taskDone", value: { token, ...outcome } });
      return item.kind === "taskDone" ? bench.step({ kind: "task-done", session: item.session, message: item.value }) : "";
    }
    case "beat": {
      const item = bench.fromWorker(worker, { kind: "heartbeat", value: { token, details: payload(get("progress")) } });
      return item.kind === "heartbeat" ? bench.step({ kind: "heartbeat", session: item.session, message: item.value }) : "";
    }
    case "evicted": {
      const last = bench.lastOf(get("run"));
      return last === undefined ? "never activated" : bench.step({ kind: "evicted", session: last.session, handle: last.handle });
    }
    case "replay-failed": {
      const last = bench.lastOf(get("run"));
      return last === undefined
        ? "never activated"
        : bench.step({ kind: "replay-failed", session: last.session, handle: last.handle, activation: last.activation });
    }
    case "answer": {
      const value = d.args.has("not-cached")
        ? { query: bench.asked, notCached: true }
        : { query: bench.asked, result: payload(get("value")) };
      const item = bench.fromWorker(worker, { kind: "queryAnswer", value });
      return item.kind === "queryAnswer" ? bench.step({ kind: "query-answered", session: item.session, message: item.value }) : "";
    }
    default:
      throw new Error(`Unknown directive ${d.cmd} at ${d.pos}`);
  }
}
