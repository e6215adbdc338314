/** Orders from a CSV file; rows that are not orders are reported with the line and the reason. */
import { parse } from "csv-parse/sync";
import type { Order } from "./order.ts";

export interface BadRow {
  readonly line: number;
  readonly order: string;
  readonly reason: string;
}

const columns = ["order", "customer", "email", "sku", "quantity", "total", "currency", "card", "note"] as const;
type Row = Record<(typeof columns)[number], string>;

export function readOrders(csv: string): { orders: Order[]; bad: BadRow[] } {
  const records = parse(csv, { bom: true, relax_column_count: true, skip_empty_lines: true, info: true }) as unknown as {
    record: string[];
    info: { lines: number };
  }[];
  const orders: Order[] = [];
  const bad: BadRow[] = [];
  const seen = new Set<string>();
  for (const { record, info } of records.slice(1)) {
    const row = Object.fromEntries(columns.map((name, i) => [name, record[i] ?? ""])) as Row;
    const reason = record.length === columns.length ? problemOf(row, seen) : `has ${record.length} columns, want ${columns.length}`;
    if (reason === undefined) {
      seen.add(row.order);
      orders.push(orderOf(row));
    } else bad.push({ line: info.lines, order: row.order, reason });
  }
  return { orders, bad };
}

function problemOf(row: Row, seen: ReadonlySet<string>): string | undefined {
  if (!/^A-\d+$/.test(row.order)) return `order number is "${row.order}", want A- and digits`;
  if (seen.has(row.order)) return `order number ${row.order} was there before`;
  if (!/^[^@\s]+@[^@\s]+\.[^@\s]+$/.test(row.email)) return `e-mail is "${row.email}"`;
  if (!/^[A-Z0-9-]+$/.test(row.sku)) return `article is "${row.sku}"`;
  if (!/^[1-9]\d{0,3}$/.test(row.quantity)) return `quantity is "${row.quantity}", want 1 to 9999`;
  if (!/^\d+\.\d\d$/.test(row.total)) return `total is "${row.total}", want an amount such as 12.50`;
  return ["EUR", "USD", "GBP"].includes(row.currency) ? undefined : `currency is "${row.currency}", want EUR, USD or GBP`;
}

function orderOf(row: Row): Order {
  const { order: id, customer, email, sku, currency, card, note } = row;
  return {
    id,
    customer,
    email,
    sku,
    quantity: Number(row.quantity),
    totalCents: Math.round(Number(row.total) * 100),
    currency,
    card,
    note,
  };
}
