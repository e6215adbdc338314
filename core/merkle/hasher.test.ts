import { expect, test } from "bun:test";
import fc from "fast-check";
import { fromHex, present, toHex } from "#core/base";
import cavp from "../../tests/golden/sha256-cavp.json";
import { bunHasher, digest, nobleHasher } from "../../tests/hashers.ts";

test("the production hasher passes the published SHA-256 messages", () => {
  expect(cavp.messages.length).toBe(73);
  for (const { bytes, message, digest: want } of cavp.messages) {
    const data = present(fromHex(message), "hex");
    expect(data.length).toBe(bytes);
    expect({ bytes, digest: toHex(digest(data)) }).toEqual({ bytes, digest: want });
  }
});

test("the production hasher agrees with the oracle, also on views and into views", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), fc.nat(20), fc.nat(20), (data, from, at) => {
      const view = data.subarray(from);
      const out = new Uint8Array(60).fill(9);
      bunHasher.sha256(view, out.subarray(at, at + 32));
      expect(out.subarray(at, at + 32)).toEqual(Uint8Array.from(digest(view.slice(), nobleHasher)));
      expect(out.subarray(0, at).every((byte) => byte === 9) && out.subarray(at + 32).every((byte) => byte === 9)).toBe(true);
    }),
  );
});
