import { expect, test } from "bun:test";
import { deliveryKind, record } from "./protocol.ts";

test("no two records begin alike, and no two deliveries are of one kind", () => {
  for (const table of [record, deliveryKind]) {
    const values: (string | number)[] = Object.values(table);
    expect(values.filter((value, i) => values.indexOf(value) !== i)).toEqual([]);
  }
});
