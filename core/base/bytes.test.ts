import { expect, test } from "bun:test";
import fc from "fast-check";
import { bytesEqual, fromHex, putU64, toHex } from "#core/base";

const bytes = fc.uint8Array({ maxLength: 40 });

test("hex comes back, and what is no hex is none", () => {
  fc.assert(fc.property(bytes, (b) => expect(fromHex(toHex(b))).toEqual(b)));
  expect(fromHex("0AfF")).toEqual(Uint8Array.of(10, 255));
  for (const text of ["0", "0g", "zz", " 00", "0x00", "00 "]) expect([text, fromHex(text)]).toEqual([text, undefined]);
});

test("bytesEqual() is equality of length and content", () => {
  fc.assert(fc.property(bytes, bytes, (a, b) => expect(bytesEqual(a, b)).toBe(toHex(a) === toHex(b))));
  fc.assert(fc.property(bytes, (a) => expect(bytesEqual(a, a.slice())).toBe(true)));
});

test("putU64() writes big-endian, up to the largest safe integer", () => {
  const edge = fc.constantFrom(0, 1, 255, 256, 2 ** 31, 2 ** 32 - 1, 2 ** 32, Number.MAX_SAFE_INTEGER);
  fc.assert(
    fc.property(fc.oneof(edge, fc.maxSafeNat()), (value) => {
      const out = new Uint8Array(10).fill(9);
      putU64(out, 1, value);
      expect(new DataView(out.buffer).getBigUint64(1)).toBe(BigInt(value));
      expect([out[0], out[9]]).toEqual([9, 9]);
    }),
  );
});
