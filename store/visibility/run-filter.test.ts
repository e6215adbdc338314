import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { filterOf } from "./run-filter.ts";
import { visibilityFormat } from "./schema.ts";

const day = (text: string) => Date.parse(text);

function filled(): Database {
  const database = new Database(":memory:");
  database.run(visibilityFormat.schema);
  const put = database.query("INSERT INTO run VALUES (1, ?, 1, 'shop', ?, ?, ?, ?, ?, x'', '', 0, 1, 0, ?, 0)");
  const rows: [string, string, number, string, string | undefined, object][] = [
    ["a", "order", 1, "2026-01-01", undefined, { customer: "ann", total: 120, gift: true }],
    [
      "b",
      "order",
      2,
      "2026-01-02",
      "2026-01-03",
      { customer: "bob", total: 99.5, gift: false, paid: { time: day("2026-01-02T10:00:00Z") } },
    ],
    ["c", "refund", 10, "2026-01-04", undefined, { customer: "O'Hara", total: "120" }],
    ["d", "refund", 1, "2026-01-05", undefined, {}],
  ];
  for (const [instance, type, status, started, closed, searchable] of rows)
    put.run(`shop:${instance}`, instance, type, status, day(started), closed === undefined ? 0 : day(closed), JSON.stringify(searchable));
  return database;
}

const database = filled();
function found(query: string): string {
  const { sql, values } = filterOf(query);
  return (database.query(`SELECT instance FROM run WHERE ${sql} ORDER BY run`).all(...values) as { instance: string }[])
    .map((row) => row.instance)
    .join("");
}

describe("a filter finds", () => {
  test.each([
    ["customer = 'ann'", "a"],
    ["customer != 'ann'", "bc"],
    ["customer = 'O''Hara'", "c"],
    ["customer LIKE 'b%' OR customer LIKE '%n'", "ab"],
    ["customer IN ('ann', 'bob') AND NOT gift = TRUE", "b"],
    ["customer NOT IN ('ann')", "bc"],
    ["total >= 100", "a"],
    ["total = 120", "a"],
    ["total = '120'", "c"],
    ["total < 1e2", "b"],
    ["gift = false", "b"],
    ["gift != false", "a"],
    ["customer IS NULL", "d"],
    ["customer is not null and type = 'refund'", "c"],
    ["paid > '2026-01-02'", "b"],
    ["paid = '2026-01-02T12:00:00+02:00'", "b"],
    ["paid < '2026-01-02 10:00'", ""],
    ["status = 'paused'", "c"],
    ["status IN ('running', 'completed') AND type = 'order'", "ab"],
    ["started >= '2026-01-04'", "cd"],
    ["closed IS NULL", "acd"],
    ["closed < '2026-02-01'", "b"],
    ["(type = 'order' OR type = 'refund') AND (instance = 'a' OR instance = 'd')", "ad"],
    ["\"customer\" = 'ann'", "a"],
    ['"x""" = 1', ""],
  ])("%s", (query, want) => {
    if (query.startsWith('"x')) expect(() => filterOf(query)).toThrow("character 4");
    else expect(found(query)).toBe(want);
  });
});

describe("a filter is refused, with the place", () => {
  test.each([
    ["", "character 1: want a name"],
    ["customer", "character 9: want =, !="],
    ["customer = ", "character 12: want a value"],
    ["customer = ann", "character 12: want a value: a 'text'"],
    ["customer = 'ann", "character 12"],
    ["customer = 'ann' customer", "character 18: want AND, OR or its end"],
    ["(total > 1", "character 11: want )"],
    ["total LIKE 5", "character 12: want a text behind LIKE"],
    ["status = 'odd'", "want = or != and a status: running"],
    ["status < 'running'", "want = or !="],
    ["started > 'yesterday'", "want a time for started"],
    ["type = 5", "want a 'text' for type"],
    ["a = 1; DROP TABLE run", "character 6"],
    [`${"(".repeat(40)}a = 1${")".repeat(40)}`, "nested deeper"],
    [`a IN (${Array.from({ length: 300 }, (_, i) => i).join()})`, "more than 200 values"],
    ["x".repeat(5000), "at most 4096"],
  ])("%s", (query, problem) => {
    expect(() => filterOf(query)).toThrow(problem);
  });
});
