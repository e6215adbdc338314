import { expect, test } from "bun:test";
import fc from "fast-check";
import { decodeRecord, encodeRecord, fromBytes, Reader, toBytes } from "#proto";
import { RecordEvents } from "./record-events.ts";

const bytes = fc.uint8Array({ maxLength: 40 });
const number = fc.oneof(fc.nat(300), fc.maxSafeNat());
const record = fc.record({
  event: fc.array(bytes, { maxLength: 5 }),
  previous: fc.array(number, { maxLength: 5 }),
  lease: fc.array(fc.record({ partition: fc.string(), op: fc.nat(9) }), { maxLength: 2 }),
  deliveredSeq: number,
  previousShard: fc.array(fc.nat(1000), { maxLength: 5 }),
});

test("the events of a record are where decoding it finds them, whatever was read before", () => {
  const events = new RecordEvents();
  fc.assert(
    fc.property(record, bytes, (made, before) => {
      const encoded = toBytes(encodeRecord, made);
      const within = Buffer.concat([before, encoded, before]);
      events.read(new Reader(within), before.length, before.length + encoded.length);
      const read = Array.from({ length: events.count }, (_, i) => ({
        event: within.subarray(events.ats[i], events.ends[i]).toString("hex"),
        previous: events.previousIndex(i),
        previousShard: events.previousShardOf(i),
      }));
      const { event, previous, previousShard } = fromBytes(decodeRecord, encoded);
      const want = event.map((each, i) => ({
        event: Buffer.from(each).toString("hex"),
        previous: previous[i] ?? 0,
        previousShard: previousShard[i] ?? 0,
      }));
      expect(read).toEqual(want);
    }),
  );
});

test("a record that ends inside an event, or elsewhere than it should, is none", () => {
  const encoded = toBytes(encodeRecord, { event: [new Uint8Array(9)], previous: [1] });
  const read = (end: number) => new RecordEvents().read(new Reader(encoded), 0, end);
  read(encoded.length);
  expect(() => read(5)).toThrow("Cannot read a field: it has 9 bytes");
  expect(() => read(encoded.length - 1)).toThrow("Cannot read a message: it ends 1 bytes too far");
});
