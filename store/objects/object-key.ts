/**
 * Which keys there may be. Folders, versitygw and MinIO all take each of them.
 *
 * A store's keys all have the same number of segments, so none is another's folder: a file system
 * can't hold `a` and `a/b`. Segments are lower case, short enough for a file name, and none is
 * hidden or leads upwards.
 */
import { HopError } from "#core/base";

export const keyDepthDefault = 3;

/** Together with the slash between them, what S3 has for a key. */
const prefixLengthMax = 255;
const keyLengthMax = 768;

const segment = /^[a-z0-9_-][a-z0-9._-]{0,199}$/;

/** What is wrong with a key, or undefined. */
export function keyProblem(key: string, depth: number): string | undefined {
  const segments = key.split("/");
  const bad = segments.find((each) => !segment.test(each));
  if (bad !== undefined) {
    return `its segment ${JSON.stringify(bad)} is not 1 to 200 of a-z, 0-9, ".", "_" and "-", without "." at the front`;
  }
  if (key.length > keyLengthMax) return `it is ${key.length} characters long, at most ${keyLengthMax} are allowed`;
  return segments.length === depth ? undefined : `it has ${segments.length} segments, want ${depth}`;
}

/** Throws BAD_REQUEST unless `key` is one. */
export function checkKey(key: string, depth: number): void {
  const problem = keyProblem(key, depth);
  if (problem !== undefined) throw new HopError("BAD_REQUEST", `Cannot use object key ${JSON.stringify(key)}: ${problem}`);
}

/** Throws BAD_REQUEST unless keys can begin with `prefix`. */
export function checkPrefix(prefix: string, depth: number): void {
  const segments = prefix.split("/");
  const partial = segments.pop() as string;
  const isGood = segments.every((each) => segment.test(each)) && (partial === "" || segment.test(partial)) && segments.length < depth;
  if (!isGood) throw new HopError("BAD_REQUEST", `Cannot list objects under ${JSON.stringify(prefix)}: no key begins with it`);
}

/** A folder within a bucket: segments like those of a key, any number of them. */
export function isBucketPrefix(prefix: string): boolean {
  return prefix.length <= prefixLengthMax && prefix.split("/").every((each) => segment.test(each));
}
