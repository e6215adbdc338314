import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { limits } from "#core/base";
import { exitCodeOf } from "./failure.ts";
import { jsonProblem, readInput } from "./input.ts";

let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "hop-input-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const textOf = async (option: string) => new TextDecoder().decode(await readInput(option));

describe("readInput()", () => {
  test("passes JSON on as it was written, large numbers with all digits", async () => {
    expect(await textOf(' {"n": 12345678901234567890} ')).toBe('{"n": 12345678901234567890}');
  });

  test("reads @file", async () => {
    await writeFile(join(dir, "in.json"), '{"a":\n1}\n');
    expect(await textOf(`@${join(dir, "in.json")}`)).toBe('{"a":\n1}');
  });

  test("is undefined when nothing was given", async () => {
    expect(await readInput(undefined)).toBeUndefined();
  });

  test.each([
    ["Ada", 'line 1, column 1: got "A", want a value'],
    ["", "it is empty"],
    ['{"a":1,}', 'line 1, column 8: got "}", want a name in double quotes'],
    ['{"a" 1}', 'line 1, column 6: got "1", want ":"'],
    ["[1 2]", 'line 1, column 4: got "2", want "," or "]"'],
    ["[1,\n 2,\n x]", 'line 3, column 2: got "x", want a value'],
    ['{"a":1', 'line 1, column 7: the text ends, want "," or "}"'],
    ['"a\\q"', 'line 1, column 3: got "\\\\", want a valid escape'],
    ["01", 'line 1, column 2: got "1", want the end'],
    ["1 2", 'line 1, column 3: got "2", want the end'],
  ])("refuses %j and says where", async (text, problem) => {
    const error = await readInput(text).catch((caught: unknown) => caught);
    expect((error as Error).message).toBe(`Cannot read --input as JSON: ${problem}`);
    expect(exitCodeOf(error)).toBe(2);
  });

  test("refuses what is too large before it is sent", async () => {
    const error = await readInput(`"${"x".repeat(limits.payloadBytesMax)}"`).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ reason: "PAYLOAD_TOO_LARGE" });
  });

  test("names the file that is missing, a folder, or not text", async () => {
    await writeFile(join(dir, "bytes"), new Uint8Array([0xff, 0xfe]));
    await expect(readInput(`@${dir}/none`)).rejects.toThrow("there is no such file");
    await expect(readInput(`@${dir}`)).rejects.toThrow("it is a folder");
    await expect(readInput(`@${dir}/bytes`)).rejects.toThrow("it is not UTF-8 text");
  });
});

test("jsonProblem() finds a fault in exactly the texts that the engine refuses", () => {
  const near = fc
    .tuple(fc.json(), fc.nat(), fc.constantFrom("", "x", ",", '"', "}", "]", "\\", "\u0001", "1", ":"))
    .map(([json, at, put]) => {
      const place = at % (json.length + 1);
      return json.slice(0, place) + put + json.slice(place + 1);
    });
  fc.assert(
    fc.property(near, (text) => {
      let isJson = true;
      try {
        JSON.parse(text);
      } catch {
        isJson = false;
      }
      expect(jsonProblem(text) === undefined).toBe(isJson);
    }),
    { numRuns: 300, seed: 7 },
  );
});
