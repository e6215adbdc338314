import { expect, test } from "bun:test";
import { asShardId } from "#core/base";
import { HotTails } from "./hot-tails.ts";

const [one, two] = [asShardId(1), asShardId(2)];

test("a shard whose tail is above its bound takes no new work until it is not, and all else goes on", () => {
  const tails = new HotTails(10 << 20);
  tails.note(one, 10 << 20);
  expect(tails.refusal(one, "start")).toBeUndefined();
  tails.note(one, (10 << 20) + 1);
  expect(tails.refusal(one, "start")).toMatchObject({ reject: "BUFFER_FULL", retryAfterMs: 1000 });
  expect(tails.refusal(one, "signal")?.message).toContain("10.0 MiB of shard 1 wait for object storage");
  for (const kind of ["cancel", "terminate", "resume", "query"]) expect(tails.refusal(one, kind)).toBeUndefined();
  expect(tails.refusal(two, "start")).toBeUndefined();
  tails.note(one, 1);
  expect(tails.refusal(one, "start")).toBeUndefined();
});
