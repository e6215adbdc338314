/** When a schedule fires, in words. */
import type { ScheduleSpec } from "#proto";
import { formatDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";

/** `0 2 * * * in Europe/Berlin`, `every 1h`, `once at …`. */
export function timesText({ cron, zone, everyMs, offsetMs, atMs }: ScheduleSpec): string {
  const where = zone === "" ? "UTC" : zone;
  const parts = cron.map((text) => `${text} in ${where}`);
  if (everyMs > 0) parts.push(`every ${formatDuration(everyMs)}${offsetMs > 0 ? ` from ${formatDuration(offsetMs)} on` : ""}`);
  if (atMs.length > 0) parts.push(`once at ${atMs.map(timeText).join(", ")}`);
  return parts.join("; ");
}
