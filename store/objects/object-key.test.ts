import { expect, test } from "bun:test";
import { checkPrefix, isBucketPrefix, keyProblem } from "./object-key.ts";

const long = "x".repeat(200);

const cases: readonly (readonly [string, number, string | undefined])[] = [
  ["a/b/c", 3, undefined],
  ["a", 1, undefined],
  [`${long}/${long}/${long}`, 3, undefined],
  ["a/b", 3, "it has 2 segments, want 3"],
  ["a/b/c/d", 3, "it has 4 segments, want 3"],
  ["a/.b/c", 3, 'its segment ".b" is not 1 to 200 of a-z, 0-9, ".", "_" and "-", without "." at the front'],
  [`${long}/${long}/${long}/${long}`, 4, "it is 803 characters long, at most 768 are allowed"],
];

test("a key has as many segments as its store wants, and each is a plain name", () => {
  expect(cases.map(([key, depth]) => keyProblem(key, depth))).toEqual(cases.map(([, , problem]) => problem));
});

test("a prefix is the beginning of some key", () => {
  for (const good of ["", "a", "a/", "a/b", "a/b/", "a/b/c"]) expect(() => checkPrefix(good, 3)).not.toThrow();
  for (const bad of ["/", "a//", "a/b/c/", "A", "a/.", "../"]) expect(() => checkPrefix(bad, 3)).toThrow(/^Cannot list objects under /);
});

test("a bucket's prefix leaves room for a key", () => {
  expect([isBucketPrefix("prod/eu.1"), isBucketPrefix("x".repeat(200)), isBucketPrefix("a//b"), isBucketPrefix("")]).toEqual([
    true,
    true,
    false,
    false,
  ]);
  expect(isBucketPrefix(`${long}/${long}`)).toBe(false);
});
