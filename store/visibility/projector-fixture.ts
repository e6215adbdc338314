/** Projects the log in argv[2] into argv[3], a few records at a time, with a line for each commit, until it is killed. */
import { asIndex } from "#core/base";
import { fixtureShard } from "../event-fixture.ts";
import { WalLogStore } from "../log/wal-log-store.ts";
import { Projector } from "./projector.ts";

const log = await WalLogStore.open({ dir: process.argv[2] as string, segmentBytes: 1 << 16, bufferBytes: 4096 });
const path = process.argv[3] as string;
const projector = Projector.open({
  path,
  logId: log.logId,
  durableIndex: (shard) => log.durableIndex(shard),
  isRemoved: (shard) => log.isRemoved(shard),
  warn: console.log,
});
let count = 0;
for (const record of log.replay(fixtureShard, asIndex(projector.appliedIndex(fixtureShard) + 1))) {
  projector.apply(record);
  if (++count % 5 !== 0) continue;
  projector.commit();
  console.log(`at ${record.index}`);
}
console.log("done");
setInterval(() => {}, 1 << 30);
