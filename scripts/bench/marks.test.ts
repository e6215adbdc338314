import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LineReader, Marks, mark, marksVariable } from "./marks.ts";

test("LineReader puts lines together that come in pieces", () => {
  const reader = new LineReader();
  expect([reader.lines("a\nb"), reader.lines("c\n"), reader.lines(""), reader.lines("d\n\n")]).toEqual([["a"], ["bc"], [], ["d", ""]]);
});

test("Marks hands over what is sent through the socket, in order and once", async () => {
  const folder = mkdtempSync(join(tmpdir(), "hop-marks-"));
  const marks = new Marks(join(folder, "marks.sock"));
  process.env[marksVariable] = marks.path;
  try {
    const seen = marks.next("third");
    mark("first", "x");
    mark("first", "y");
    mark("third");
    const third = await seen;
    expect(marks.all("first").map(({ id }) => id)).toEqual(["x", "y"]);
    expect(marks.all("first")[0]?.t).toBeLessThanOrEqual(third.t);
    expect(() => [marks.next("late"), marks.next("late")]).toThrow("Cannot wait for mark late twice");
    await expect(marks.next("never", 1)).rejects.toThrow("Mark never did not come within 1 ms");
    marks.clear();
    expect(marks.all("first")).toEqual([]);
  } finally {
    delete process.env[marksVariable];
    marks.close();
    rmSync(folder, { recursive: true });
  }
});
