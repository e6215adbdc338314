import { expect, test } from "bun:test";
import type { RunId } from "#core/base";
import { letterAddress } from "./context.ts";
import { UsageError } from "./failure.ts";

const read = (text: string) => letterAddress(text, { namespace: "shop" }, {});

test("a dead letter may leave its namespace out, as a run may", () => {
  expect(read("12@default:order-1")).toEqual({ run: "default:order-1" as RunId, ticket: 12 });
  expect(read("12@order-1")).toEqual({ run: "shop:order-1" as RunId, ticket: 12 });
  expect(read("12@3@order-1")).toEqual({ run: "shop:3@order-1" as RunId, ticket: 12 });
});

test.each(["order-1", "default:order-1", "0@order-1", "12@", "@order-1", "x@order-1"])("%j is no dead letter", (text) => {
  expect(() => read(text)).toThrow(UsageError);
});

test("a dead letter of a bad name is refused before anybody is asked", () => {
  expect(() => read("12@-:order-1")).toThrow('Cannot use run id "12@-:order-1"');
});
