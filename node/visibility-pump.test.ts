import { expect, test } from "bun:test";
import { asIndex } from "#core/base";
import type { ListRequest } from "#proto";
import { MemoryLogStore, Projector } from "#store";
import { event, fixtureShard, RecordWriter } from "../store/event-fixture.ts";
import { VisibilityPump } from "./visibility-pump.ts";

const all: ListRequest = { namespace: "", status: 0, type: "", limit: 0, pageToken: "" };

test("on a full disk a list shows what is indexed, says once that it is stale, and is whole again with space", async () => {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  const projector = Projector.open({ path: ":memory:", logId: "log-a", durableIndex: () => asIndex(1e9), warn: () => {} });
  const warnings: string[] = [];
  const warn = (message: string) => void warnings.push(message);
  const pump = new VisibilityPump({ shard: fixtureShard, log, projector, onRecord: () => {}, onFault: () => {}, warn });
  const names = async () => (await pump.list(all)).run.map(({ run }) => run).sort();
  writer.record(event.started("run/a:early", 1));
  await writer.settle();
  expect(await names()).toEqual(["a:early"]);
  const { page_count: pages } = projector.database.query("PRAGMA page_count").get() as { page_count: number };
  projector.database.run(`PRAGMA max_page_count = ${pages}`);
  const late = Array.from({ length: 200 }, (_, i) => `late-${i}`);
  for (const name of late) writer.record(event.started(`run/a:${name}`, 1));
  await writer.settle();
  expect([await names(), await names()]).toEqual([["a:early"], ["a:early"]]);
  expect(warnings).toEqual([expect.stringContaining("stale")]);
  projector.database.run("PRAGMA max_page_count = 100000");
  const reply = await pump.list({ ...all, limit: 500 });
  expect(reply.run).toHaveLength(201);
  expect(warnings).toHaveLength(1);
  await pump.close();
});
