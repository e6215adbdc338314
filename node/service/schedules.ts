/** What is asked of schedules, checked; and previews, which need no shard. */
import { HopError, instanceOf, limits, utf8Bytes } from "#core/base";
import { dueMsOf, fires, specProblem } from "#core/schedule";
import type { Command } from "#core/shard";
import {
  decodeScheduleAction,
  decodeSchedulePolicy,
  fromBytes,
  OverlapPolicy,
  type Payload,
  type PreviewReplyInit,
  type PreviewRequest,
  type ScheduleCommand,
  type ScheduleConfig,
} from "#proto";
import { zones } from "../zones.ts";
import { bad, checkAddress, checkMs, checkName, checkText } from "./validate.ts";

/** A run's name is the schedule's id with the instant behind it. */
const idBytesMax = 200;
const previewMax = 1000;
const previewDefault = 10;

/** Times are checked where the schedule is decided: what a zone is may differ here. */
export function checkSchedule(m: ScheduleCommand): Extract<Command, { kind: "schedule" }> {
  const doing = `${m.kind === "unknown" ? "change" : m.kind} a schedule`;
  const { run, ticket } = checkAddress(doing, m.schedule, "schedule");
  if (ticket > 0) throw bad(doing, "schedule", "holds a ticket, want namespace:id");
  if (utf8Bytes(instanceOf(run)) > idBytesMax) throw bad(doing, "schedule", `is longer than ${idBytesMax} bytes`);
  switch (m.kind) {
    case "create":
      return { kind: "schedule", run, ask: { ...m, value: { ...m.value, config: checkConfig(doing, m.value.config) } } };
    case "update":
      return { kind: "schedule", run, ask: { ...m, value: checkConfig(doing, m.value) } };
    case "backfill":
      return { kind: "schedule", run, ask: m };
    case "unknown":
      throw new HopError("BAD_REQUEST", `Cannot ${doing}: this version does not know what is asked`);
    default:
      checkText(doing, "reason", m.value.reason);
      return { kind: "schedule", run, ask: m };
  }
}

function checkConfig(doing: string, config: ScheduleConfig | undefined): ScheduleConfig {
  const nothing = new Uint8Array(0);
  const action = config?.action ?? fromBytes(decodeScheduleAction, nothing);
  const policy = config?.policy ?? fromBytes(decodeSchedulePolicy, nothing);
  checkName(doing, "type", action.type);
  checkMs(doing, "deadline_ms", action.deadlineMs);
  if (policy.overlap > OverlapPolicy.allowAll)
    throw bad(doing, "overlap", `is ${policy.overlap}, want an OverlapPolicy of at most ${OverlapPolicy.allowAll}`);
  if (policy.catchUpMs > limits.scheduleCatchUpMsMax) {
    throw bad(doing, "catch_up_ms", `is ${policy.catchUpMs} ms, want at most ${limits.scheduleCatchUpMsMax} ms (a year)`);
  }
  const note = checkText(doing, "note", config?.note ?? "");
  const catchUpMs = policy.catchUpMs === 0 ? limits.scheduleCatchUpMs : policy.catchUpMs;
  return { spec: config?.spec, action, policy: { ...policy, catchUpMs }, note };
}

/** The input of what it is to start, where it says one. */
export function inputOf(ask: ScheduleCommand): Payload | undefined {
  if (ask.kind === "create") return ask.value.config?.action?.input;
  return ask.kind === "update" ? ask.value.action?.input : undefined;
}

/** When a specification fires, by the zones of this machine. Throws `HopError` BAD_REQUEST where it can't. */
export function preview({ spec, schedule, afterMs, count }: PreviewRequest, nowMs: number): PreviewReplyInit {
  const from = afterMs === 0 ? nowMs : afterMs;
  const problem = spec === undefined ? "it says no time" : specProblem(spec, zones, from);
  if (spec === undefined || problem !== undefined) throw new HopError("BAD_REQUEST", `Cannot preview a schedule: ${problem}`);
  if (count > previewMax) throw bad("preview a schedule", "count", `is ${count}, want at most ${previewMax}`);
  const instant = fires(spec, zones, from, count === 0 ? previewDefault : count).map(({ atMs, change = "" }) => {
    const dueMs = dueMsOf({ spec, zones, id: schedule }, atMs);
    const aheadMs = spec.zone === "" ? 0 : (zones.offsetMs(spec.zone, atMs) ?? 0);
    return { atMs, dueMs, aheadMs: Math.abs(aheadMs), behind: aheadMs < 0, change };
  });
  return { instant };
}
