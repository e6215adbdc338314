/** The durable format: these bytes, hashes and peaks are in logs, so they never change. */
import { expect, test } from "bun:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { fromHex, present, toHex } from "#core/base";
import { Mmr, verifyHistory } from "#core/merkle";
import { decodeEvent, fromBytes } from "#proto";
import { EventSchema } from "../../proto/gen/hopskip/v1/event_pb.js";
import golden from "../../tests/golden/event-bytes.json";
import { bunHasher, digest, nobleHasher } from "../../tests/hashers.ts";
import { sampleHistory, samplePartition } from "../../tests/sample-events.ts";

const bytesOf = (text: string) => present(fromHex(text), "hex");

test("the sample events have the bytes, hashes, peaks and roots they always had", () => {
  const { events } = sampleHistory(bunHasher);
  const mmr = new Mmr();
  const got = events.map((bytes, seq) => {
    const hash = digest(bytes);
    mmr.append(hash, bunHasher);
    const { kind } = fromBytes(decodeEvent, bytes);
    const peaks = toHex(mmr.peaks()).match(/.{64}/g) ?? [];
    return { seq, kind, bytes: toHex(bytes), hash: toHex(hash), peaks: [...peaks], root: toHex(mmr.root(bunHasher)) };
  });
  expect(golden.partition).toBe(samplePartition);
  expect(got).toEqual(golden.events);
});

test("the golden bytes are a history that still verifies", () => {
  const events = golden.events.map(({ bytes }) => bytesOf(bytes));
  const last = present(golden.events.at(-1), "last event");
  const expected = { size: 13, lastHash: bytesOf(last.hash), root: bytesOf(last.root) };
  expect(verifyHistory(nobleHasher, events, { partition: golden.partition, expected }).ok).toBe(true);
});

test("the golden bytes are what protobuf's own implementation writes", () => {
  for (const { bytes } of golden.events) {
    const event = fromBytes(decodeEvent, bytesOf(bytes));
    const { seq, timeMs, identity } = event;
    const who = identity === undefined ? {} : { identity: { ...identity, causeSeq: BigInt(identity.causeSeq) } };
    const { partition, logical, kind, schemaId, payload, prevHash } = event;
    const message = create(EventSchema, {
      partition,
      logical,
      kind,
      schemaId,
      payload,
      prevHash,
      seq: BigInt(seq),
      timeMs: BigInt(timeMs),
      ...who,
    });
    expect(toHex(toBinary(EventSchema, message))).toBe(bytes);
  }
});
