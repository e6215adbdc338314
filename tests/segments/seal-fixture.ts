/** Seals a busy shard's records in the thread that the executable carries; prints what came of it. */
import { asIndex, asShardId } from "#core/base";
import { packRecords } from "../../store/segment/sealed/record-batch.ts";
import { busyShard } from "../../store/segment/sealed/records-fixture.ts";
import { SealThread } from "../../store/segment/sealed/seal-thread.ts";

const records = [...busyShard(5000)];
const thread = new SealThread();
const sealed = await thread.segment(packRecords(records), {
  shard: asShardId(1),
  firstIndex: asIndex(1),
  lastIndex: asIndex(records.length),
});
const { segmentSha256, indexSha256 } = sealed.summary;
console.log(Buffer.from(segmentSha256).toString("hex"), Buffer.from(indexSha256).toString("hex"));
// It ends by itself: an idle thread keeps nobody.
