import { describe, expect, test } from "bun:test";
import { type Listing, Output, type OutputOptions } from "./output.ts";
import { bufferSink } from "./sink-fixture.ts";
import { safeJson, visible, visibleLines, widthOf } from "./terminal.ts";

interface Row {
  readonly name: string;
  readonly count: number;
}

const listing: Listing<Row> = {
  columns: [
    { title: "NAME", value: (row) => row.name, shrink: true, paint: (text) => `\u001b[31m${text}\u001b[39m` },
    { title: "COUNT", value: (row) => String(row.count), align: "right" },
  ],
  id: (row) => row.name,
  json: (row) => row,
  empty: "Nothing there",
};

function listed(rows: readonly Row[], options: Partial<OutputOptions> = {}, terminal?: { columns: number }) {
  const out = bufferSink(terminal);
  const err = bufferSink();
  new Output({ out, err, env: {}, ...options }).list(rows, listing);
  return { out: out.text(), err: err.text() };
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a colour code
const colourCode = /\u001b\[\d+m/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const steering = /[\u007f-\u009f\u2028\u202e\u001b]/;

const rows = [
  { name: "ada", count: 3 },
  { name: "日本", count: 12345 },
];

describe("a list", () => {
  test("is a table for people, wide characters counted as two columns", () => {
    expect(listed(rows, { color: false }).out.replace(colourCode, "")).toBe("NAME  COUNT\nada       3\n日本  12345\n");
  });

  test("is never shortened in a pipe, and fits a narrow terminal", () => {
    const long = [{ name: "x".repeat(300), count: 1 }];
    expect(listed(long).out).toContain("x".repeat(300));
    const lines = listed(long, {}, { columns: 40 }).out.trimEnd().split("\n");
    expect(Math.max(...lines.map(widthOf))).toBe(40);
    expect(lines[1]).toContain("…");
  });

  test("leaves out what may be left out before a column that is never cut", () => {
    const out = bufferSink({ columns: 20 });
    const columns = [
      { title: "ID", value: (row: Row) => row.name },
      { title: "NOTE", value: () => "long long long long", shrink: true, drop: true },
    ];
    new Output({ out, env: {}, color: false }).table(columns, [{ name: "0123456789", count: 1 }]);
    expect(out.text()).toBe("ID\n0123456789\n");
  });

  test("is one value with -o json", () => {
    expect(JSON.parse(listed(rows, { format: "json" }).out)).toEqual(rows);
  });

  test("is one value a line with -o jsonl", () => {
    expect(
      listed(rows, { format: "jsonl" })
        .out.trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line)),
    ).toEqual(rows);
  });

  test("is one id a line with -o ids", () => {
    expect(listed(rows, { format: "ids" }).out).toBe("ada\n日本\n");
  });

  test("that is empty is said to people and is an empty list for programs", () => {
    expect(listed([])).toEqual({ out: "", err: "Nothing there\n" });
    expect(listed([], { format: "json" })).toEqual({ out: "[]\n", err: "" });
    expect(listed([], { format: "jsonl" })).toEqual({ out: "", err: "" });
  });
});

describe("colour", () => {
  const heading = (options: Partial<OutputOptions>, terminal?: { columns: number }) => listed(rows, options, terminal).out.split("\n")[0];

  test("is used on a terminal and not in a pipe", () => {
    expect(heading({}, { columns: 80 })).toContain("\u001b[1m");
    expect(heading({})).not.toContain("\u001b[1m");
  });

  test.each([
    ["NO_COLOR", { env: { NO_COLOR: "1" } }],
    ["--no-color", { color: false }],
    ["a dumb terminal", { env: { TERM: "dumb" } }],
    ["NO_COLOR over FORCE_COLOR", { env: { NO_COLOR: "1", FORCE_COLOR: "1" } }],
  ])("is off with %s", (_name, options) => {
    expect(heading(options, { columns: 80 })).not.toContain("\u001b[1m");
  });

  test("is on in a pipe with FORCE_COLOR, and an empty NO_COLOR says nothing", () => {
    expect(heading({ env: { FORCE_COLOR: "1", NO_COLOR: "" } })).toContain("\u001b[1m");
  });
});

describe("values", () => {
  test.each([
    ["a\nb\tc", "a\\nb\\tc"],
    ["\u001b]0;title\u0007", "\\u001b]0;title\\u0007"],
    ["\u009b31m", "\\u009b31m"],
    ["abc\u202edef", "abc\\u202edef"],
    ["\ud800", "\\ud800"],
    ["naïve 👩‍👩‍👧 \"q' ../:/", "naïve 👩‍👩‍👧 \"q' ../:/"],
  ])("%j is shown as %j", (text, shown) => {
    expect(visible(text)).toBe(shown);
  });

  test("of several lines stand on lines of their own and steer nothing", () => {
    expect(visibleLines("a\r\n\u001b[2J\nb")).toBe("a\n  \\u001b[2J\n  b");
  });

  test("in JSON stay what they are and steer nothing", () => {
    const value = { "\u009b": "\u001b[2J\u202e\u2028\u007f" };
    expect(safeJson(value)).not.toMatch(steering);
    expect(JSON.parse(safeJson(value))).toEqual(value);
  });
});

describe("progress", () => {
  test("is drawn on a terminal and taken away again", () => {
    const err = bufferSink({ columns: 30 });
    const progress = new Output({ err, env: {} }).progress();
    progress.update("waiting for a very long name that does not fit the line");
    progress.done();
    expect(err.text()).toContain("waiting for");
    expect(widthOf(err.text().split("\r")[1] as string)).toBeLessThan(30);
    expect(err.text()).toEndWith("\r\u001b[2K");
  });

  test("writes nothing into a pipe but its lines", () => {
    const err = bufferSink();
    const progress = new Output({ err, env: {} }).progress();
    progress.update("waiting");
    progress.line("line 3: bad");
    progress.done();
    expect(err.text()).toBe("line 3: bad\n");
  });
});

test("a description is a line for each thing that there is to say", () => {
  const out = bufferSink();
  const output = new Output({ out, err: bufferSink(), env: {}, color: false });
  output.field("run", "default:order-1");
  output.field("note", "");
  output.field("compensation", "refund", 12);
  expect(out.text().replace(colourCode, "")).toBe("run        default:order-1\ncompensation refund\n");
});
