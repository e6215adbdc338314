import { expect, test } from "bun:test";
import { asIndex, InvariantError } from "#core/base";
import { changeOf, decodeHeader } from "#core/shard";
import { lead, makeShard, RecordLog } from "../../tests/shard-maker.ts";

const nowMs = 1_800_000_000_000;
const sha256 = new Uint8Array(32).fill(7);

function led() {
  const log = new RecordLog();
  const machine = makeShard({ log });
  lead(machine, { nowMs });
  return { log, machine };
}

test("what is sealed is a record of the log, and every replica learns it from there", () => {
  const { log, machine } = led();
  expect(machine.header()).toMatchObject({ sealedThrough: 0, manifest: 0 });
  expect("reject" in machine.seal({ through: 1, manifest: 1, sha256, statesThrough: 0 }, nowMs)).toBe(false);
  expect(changeOf(log.record(2))).toEqual({ kind: "sealed", value: { through: 1, manifest: 1, sha256, statesThrough: 0 } });
  const follower = makeShard({ log: new RecordLog() });
  log.feed(follower, 1);
  for (const each of [machine, follower])
    expect(each.header()).toMatchObject({ sealedThrough: 1, manifest: 1, manifestSha256: sha256, statesThrough: 0, changedIndex: 0 });
  expect(follower.takeChanges().map(({ change }) => change.kind)).toEqual(["led", "sealed"]);
});

test("a checkpoint keeps what is sealed", () => {
  const { machine } = led();
  machine.seal({ through: 1, manifest: 4, sha256, statesThrough: 1 }, nowMs);
  const { header } = machine.capture(10);
  expect(decodeHeader(header)).toMatchObject({ sealedThrough: 1, manifest: 4, manifestSha256: sha256, statesThrough: 1 });
});

test("a seal that goes back, or beyond the log, is refused and changes nothing", () => {
  const { log, machine } = led();
  machine.seal({ through: 1, manifest: 2, sha256, statesThrough: 0 }, nowMs);
  const before = machine.header();
  for (const wrong of [
    { through: 1, manifest: 2, sha256, statesThrough: 0 },
    { through: 0, manifest: 3, sha256, statesThrough: 0 },
    { through: 2, manifest: 2, sha256, statesThrough: 0 },
    { through: 3, manifest: 3, sha256, statesThrough: 0 },
  ])
    expect(machine.seal(wrong, nowMs)).toMatchObject({ reject: "BAD_REQUEST" });
  expect(() => machine.seal({ through: 2, manifest: 3, sha256: new Uint8Array(31), statesThrough: 0 }, nowMs)).toThrow(InvariantError);
  expect([machine.header(), log.lastIndex]).toEqual([before, asIndex(2)]);
});

test("a newer manifest of the same records takes the place of the one before", () => {
  const { machine } = led();
  machine.seal({ through: 1, manifest: 2, sha256, statesThrough: 1 }, nowMs);
  const other = new Uint8Array(32).fill(9);
  expect("reject" in machine.seal({ through: 1, manifest: 3, sha256: other, statesThrough: 1 }, nowMs)).toBe(false);
  expect(machine.header()).toMatchObject({ sealedThrough: 1, manifest: 3, manifestSha256: other, statesThrough: 1 });
});

test("a frozen shard is not sealed: whoever absorbs it does that", () => {
  const { machine } = led();
  machine.freeze({ into: 2 as never }, nowMs);
  expect(machine.seal({ through: 1, manifest: 1, sha256, statesThrough: 0 }, nowMs)).toMatchObject({ reject: "SHARD_BUSY" });
});
