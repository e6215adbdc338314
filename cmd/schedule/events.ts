/** A schedule's own events for the eye. */
import {
  decodeScheduleBackfilled,
  decodeScheduleCreated,
  decodeScheduleDeleted,
  decodeScheduleFired,
  decodeScheduleMissed,
  decodeSchedulePaused,
  decodeScheduleResumed,
  decodeScheduleTriggered,
  decodeScheduleUpdated,
  EventKind,
  type ScheduleConfig,
  type ScheduleNext,
} from "#proto";
import { type Kind, kind, words } from "../event-kind.ts";
import { timeText } from "../event-text.ts";
import { outcomeWord, overlapWord } from "./names.ts";
import { timesText } from "./spec-text.ts";

const nextText = (next: ScheduleNext | undefined) => ((next?.atMs ?? 0) === 0 ? "fires no more" : `next at ${timeText(next?.atMs ?? 0)}`);
const configText = ({ spec, action, policy }: ScheduleConfig) =>
  words(action?.type ?? "", spec === undefined ? "" : timesText(spec), overlapWord(policy?.overlap ?? 0));

export const scheduleKinds: Record<number, Kind> = {
  [EventKind.scheduleCreated]: kind("ScheduleCreated", decodeScheduleCreated, (m) =>
    words(m.config === undefined ? "" : configText(m.config), m.paused ? "paused" : nextText(m.next)),
  ),
  [EventKind.scheduleUpdated]: kind("ScheduleUpdated", decodeScheduleUpdated, (m) =>
    words(m.config === undefined ? "" : configText(m.config), nextText(m.next)),
  ),
  [EventKind.schedulePaused]: kind("SchedulePaused", decodeSchedulePaused, (m) => m.reason),
  [EventKind.scheduleResumed]: kind("ScheduleResumed", decodeScheduleResumed, (m) => words(m.reason, nextText(m.next))),
  [EventKind.scheduleFired]: kind("ScheduleFired", decodeScheduleFired, (m) =>
    words(timeText(m.atMs), `${m.instance} ${outcomeWord(m.outcome)}`, nextText(m.next)),
  ),
  [EventKind.scheduleMissed]: kind("ScheduleMissed", decodeScheduleMissed, (m) =>
    words(`${m.count} instants from ${timeText(m.firstMs)} to ${timeText(m.lastMs)}`, nextText(m.next)),
  ),
  [EventKind.scheduleTriggered]: kind("ScheduleTriggered", decodeScheduleTriggered, (m) => `${m.instance} ${outcomeWord(m.outcome)}`),
  [EventKind.scheduleBackfilled]: kind("ScheduleBackfilled", decodeScheduleBackfilled, (m) =>
    words(`${m.instant.length} instants from ${timeText(m.fromMs)} to ${timeText(m.toMs)}`, m.atOnce ? "at once" : "one after the other"),
  ),
  [EventKind.scheduleDeleted]: kind("ScheduleDeleted", decodeScheduleDeleted, (m) => m.reason),
};
