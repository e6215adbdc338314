import { expect, test } from "bun:test";
import fc from "fast-check";
import { instanceOf, nameProblem, namespaceOf, namespaceProblem, parseRunId, type RunId, runOf, runPartition, utf8Bytes } from "#core/base";

test("a name is any well-formed text of 1 to 255 bytes without control characters", () => {
  const fine = ["a", " ", "/", ":", "../", "order 1", "'; drop table", '"', "🐇", "ü".repeat(127), "x".repeat(255), "wf_1", "a:b:c"];
  for (const name of fine) expect([name, nameProblem(name)]).toEqual([name, undefined]);
  expect(nameProblem("")).toBe("is empty");
  expect(nameProblem("x".repeat(256))).toBe("has 256 bytes, at most 255 are allowed");
  expect(nameProblem("🐇".repeat(64))).toBe("has 256 bytes, at most 255 are allowed");
  for (const name of ["a\0b", "\n", "tab\t", "\u007f", "\u001b[1m"])
    expect([name, nameProblem(name)]).toEqual([name, "holds a control character"]);
  for (const name of ["\ud800", "x\udc00y"]) expect(nameProblem(name)).toBe("is not well-formed Unicode");
});

test("a namespace keeps to letters, digits and three signs", () => {
  for (const name of ["default", "a", "A-1_b.c", "x".repeat(63), "0"]) expect(namespaceProblem(name)).toBeUndefined();
  for (const name of ["", ".", "-a", "a:b", "a/b", "a b", "ü", "x".repeat(64), "a\n"])
    expect([name, namespaceProblem(name)]).not.toEqual([name, undefined]);
});

test("parseRunId() splits at the first colon and names what is wrong", () => {
  expect(parseRunId("default:a:b")).toBe("default:a:b" as RunId);
  expect(parseRunId("default")).toEqual({ problem: "has no ':' between namespace and instance" });
  expect(parseRunId("")).toEqual({ problem: "has no ':' between namespace and instance" });
  expect(parseRunId("default:")).toEqual({ problem: "its instance name is empty" });
  expect(parseRunId(":a")).toEqual({ problem: expect.stringContaining("its namespace is not") as unknown as string });
  expect(parseRunId("bad space:a")).toEqual({ problem: expect.stringContaining("its namespace is not") as unknown as string });
});

test("an address comes apart into what it was made of", () => {
  fc.assert(
    fc.property(
      fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/),
      fc.string({ minLength: 1, maxLength: 60, unit: "grapheme" }),
      (space, name) => {
        fc.pre(nameProblem(name) === undefined);
        const run = parseRunId(`${space}:${name}`);
        expect(typeof run).toBe("string");
        expect(namespaceOf(run as RunId)).toBe(space);
        expect(instanceOf(run as RunId)).toBe(name);
        expect(runOf(runPartition(run as RunId))).toBe(run as RunId);
      },
    ),
  );
});

test("utf8Bytes() counts what the encoder writes", () => {
  fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => expect(utf8Bytes(text)).toBe(new TextEncoder().encode(text).length)));
});
