/** The segment that a log goes on with when it is opened. */
import fs from "node:fs";
import { type LogDisk, syncFolder } from "./log-disk.ts";
import type { Recovered } from "./recovery.ts";
import { beginSegment, createSegment, drawHeader, drawLogId, type OpenSegment, reopenSegment, segmentFormat } from "./segment-file.ts";
import { sidecarOf } from "./sidecar.ts";

export interface CurrentOptions {
  readonly dir: string;
  readonly segmentBytes: number;
  readonly disk: LogDisk;
}

/** The last segment, or a new one where there is none that can be written to. */
export async function openCurrent(recovered: Recovered | undefined, options: CurrentOptions): Promise<OpenSegment> {
  const { dir, disk, segmentBytes: limit } = options;
  const last = recovered?.segments.at(-1);
  const isOpen = last !== undefined && recovered?.headless === undefined;
  // An older format has no place for what is written now.
  if (isOpen && last.header.format === segmentFormat) {
    // It tells of the segment as it is now, and would be believed when there is a later one.
    fs.rmSync(sidecarOf(last.path), { force: true });
    await syncFolder(disk, dir);
    return reopenSegment(last, limit);
  }
  const number = recovered?.headless ?? (last?.header.number ?? 0) + 1;
  const segment = await createSegment(dir, drawHeader(number, last?.header.logId ?? drawLogId()), limit, disk);
  try {
    await beginSegment(dir, segment, disk);
    return segment;
  } catch (error) {
    fs.closeSync(segment.fd);
    fs.rmSync(segment.path, { force: true });
    throw error;
  }
}
