import { expect, test } from "bun:test";
import { type ListReply, type ListRequestInit, RunStatus, type RunSummary } from "#proto";
import { liveOn } from "./deployment.ts";

/** Pages of runs by status, of which `pages` gives how many each has. */
const listing = (pages: Readonly<Record<number, readonly number[]>>) => ({
  list: ({ status = 0, pageToken = "" }: ListRequestInit): Promise<ListReply> => {
    const at = Number(pageToken);
    const counts = pages[status] ?? [];
    const run = Array.from({ length: counts[at] ?? 0 }, () => ({}) as RunSummary);
    return Promise.resolve({ run, nextPageToken: at + 1 < counts.length ? String(at + 1) : "" });
  },
});

const version = { namespace: "default", type: "order", bundle: "00" };

test("a version is drained once the last of its runs has its compensations behind it", async () => {
  expect(await liveOn(listing({ [RunStatus.running]: [3, 2], [RunStatus.compensating]: [1] }), version)).toBe(6);
  expect(await liveOn(listing({ [RunStatus.compensating]: [1] }), version)).toBe(1);
  expect(await liveOn(listing({ [RunStatus.completed]: [4], [RunStatus.terminated]: [1] }), version)).toBe(0);
});
