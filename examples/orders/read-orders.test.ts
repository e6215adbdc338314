import { expect, test } from "bun:test";
import { join } from "node:path";
import { readOrders } from "./read-orders.ts";

const header = "order,customer,email,sku,quantity,total,currency,card,note\n";
const row = (part: Partial<Record<string, string>> = {}) =>
  Object.values({
    order: "A-1",
    customer: "Ada",
    email: "ada@example.com",
    sku: "MUG-BLUE",
    quantity: "2",
    total: "12.50",
    currency: "EUR",
    card: "tok_1",
    note: "",
    ...part,
  }).join(",");

test("readOrders() takes orders and names the line and the reason of what is none", () => {
  const bad: [Partial<Record<string, string>>, string][] = [
    [{ order: "" }, 'order number is "", want A- and digits'],
    [{ order: "A-1" }, "order number A-1 was there before"],
    [{ order: "A-2", email: "nobody" }, 'e-mail is "nobody"'],
    [{ order: "A-3", quantity: "-2" }, 'quantity is "-2", want 1 to 9999'],
    [{ order: "A-4", total: "n/a" }, 'total is "n/a", want an amount such as 12.50'],
    [{ order: "A-5", currency: "XAU" }, 'currency is "XAU", want EUR, USD or GBP'],
  ];
  const read = readOrders(`${header}${row()}\n${bad.map(([part]) => row(part)).join("\n")}\nA-6,too,short\n`);
  expect(read.orders).toHaveLength(1);
  expect(read.orders[0]).toMatchObject({ id: "A-1", quantity: 2, totalCents: 1250 });
  expect(read.bad.map(({ reason }) => reason)).toEqual([...bad.map(([, reason]) => reason), "has 3 columns, want 9"]);
  expect(read.bad.map(({ line }) => line)).toEqual([3, 4, 5, 6, 7, 8, 9]);
});

test("the example's file holds 291 orders and nine rows that are none", async () => {
  const read = readOrders(await Bun.file(join(import.meta.dir, "orders.csv")).text());
  expect([read.orders.length, read.bad.length]).toEqual([291, 9]);
});
