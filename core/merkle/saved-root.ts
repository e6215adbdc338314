/**
 * The root file that an auditor keeps on his own side: only against a root kept elsewhere can a
 * history that was rewritten as a whole, or cut at its end, be told from the true one.
 *
 * Format (JSON, hex in lower case): format, partition, size, peaks (left to right), root.
 */
import { bytesEqual, type Hasher, toHex } from "#core/base";
import { type NodeReader, rootOf } from "./proof.ts";
import { countField, type Fields, hashesField, hexField, type Problem, parseFields } from "./strict-json.ts";
import { bagPeaks, bitCount, hashBytes, sizeMax, verifyConsistency } from "./verify.ts";

/** One thing that was checked, and what was found. */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  readonly detail: string;
}

/** Whether something was checked and all of it holds. */
export function isVerified(checks: readonly Check[]): boolean {
  return checks.length > 0 && checks.every((check) => check.ok);
}

export interface SavedRoot {
  readonly partition: string;
  readonly size: number;
  /** 32 bytes each, left to right. */
  readonly peaks: Uint8Array;
  readonly root: Uint8Array;
}

const format = "hopskip-root/1";

export function savedRootText(saved: SavedRoot): string {
  const { partition, size, peaks, root } = saved;
  return `${JSON.stringify({ format, partition, size, peaks: peakTexts(peaks), root: toHex(root) }, null, 2)}\n`;
}

/** The root file in `text`, whose peaks bag to its root, or what is wrong with it. */
export function parseSavedRoot(text: string, hasher: Hasher): SavedRoot | Problem {
  const parsed = parseFields(text, ["format", "partition", "size", "peaks", "root"]);
  if ("problem" in parsed) return parsed;
  const saved = parseRange(parsed.fields, format);
  if ("problem" in saved) return saved;
  const { size, peaks, root } = saved;
  const peakCount = peaks.length / hashBytes;
  if (peakCount !== bitCount(size)) return { problem: `it has ${peakCount} peaks, want ${bitCount(size)} for ${size} events` };
  const own = bagPeaks(hasher, size, peaks);
  return bytesEqual(own, root) ? saved : { problem: `its root is ${toHex(root)}, but its peaks give ${toHex(own)}` };
}

/** The fields that root and proof files share; that they fit together is for the caller to check. */
export function parseRange(fields: Fields, want: string): SavedRoot | Problem {
  if (fields.format !== want) return { problem: `its format is ${JSON.stringify(fields.format)}, want "${want}"` };
  if (typeof fields.partition !== "string") return { problem: "its partition is not a text" };
  const size = countField(fields.size, sizeMax);
  if (size === undefined) return { problem: `its size is not an integer from 0 to ${sizeMax}` };
  const peaks = hashesField(fields.peaks);
  if (peaks === undefined) return { problem: "its peaks are not hashes of 64 lower-case hex digits each" };
  const root = hexField(fields.root, hashBytes);
  if (root === undefined) return { problem: "its root is not a hash of 64 lower-case hex digits" };
  return { partition: fields.partition, size, peaks: join(peaks), root };
}

/** A later history, all of whose nodes were built from bytes that were hashed again. */
export interface LaterHistory {
  readonly partition: string;
  readonly nodes: NodeReader;
  /** Events below expired: of shorter ranges nothing is known. Left out: none did. */
  readonly firstSeq?: number;
}

/** Whether `later` extends what the root was saved of. */
export function historyChecks(saved: SavedRoot, later: LaterHistory, hasher: Hasher): Check[] {
  const checks = placeChecks(saved, { partition: later.partition, size: later.nodes.size });
  if (!isVerified(checks)) return checks;
  const { firstSeq = 0 } = later;
  if (saved.size < firstSeq) {
    const detail = `the root was saved at ${saved.size} events, and of the first ${firstSeq} only the root of all is left: nothing can be said of it`;
    return [...checks, { name: "saved-consistency", ok: false, detail }];
  }
  const own = rootOf(later.nodes, saved.size, hasher);
  const ok = bytesEqual(own, saved.root);
  const found = `the first ${saved.size} events have the root ${toHex(own)}`;
  return [...checks, { name: "saved-consistency", ok, detail: ok ? found : `${found}, want ${toHex(saved.root)}` }];
}

/** A later root and the paths that join the saved peaks to its own (see `ConsistencyProof`). */
export interface LaterRoot extends SavedRoot {
  readonly paths: readonly (readonly Uint8Array[])[];
}

/** Whether `later` extends the saved root. */
export function consistencyChecks(saved: SavedRoot, later: LaterRoot, hasher: Hasher): Check[] {
  const checks = placeChecks(saved, later);
  if (!isVerified(checks)) return checks;
  const proof = { fromSize: saved.size, toSize: later.size, paths: later.paths, fromPeaks: saved.peaks, toPeaks: later.peaks };
  const ok = verifyConsistency(hasher, { proof, fromRoot: saved.root, toRoot: later.root });
  const range = `${later.size} events under ${toHex(later.root)}`;
  const detail = `${range} ${ok ? "extend" : "do not extend"} ${saved.size} events under ${toHex(saved.root)}`;
  return [...checks, { name: "saved-consistency", ok, detail }];
}

function placeChecks(saved: SavedRoot, later: { readonly partition: string; readonly size: number }): Check[] {
  const isSame = saved.partition === later.partition;
  const isLonger = later.size >= saved.size;
  const other = isSame ? "" : `, this is ${JSON.stringify(later.partition)}`;
  const partition = `the saved root is of ${JSON.stringify(saved.partition)}${other}`;
  const size = `the root was saved at ${saved.size} events, now there are ${later.size}`;
  return [
    { name: "saved-partition", ok: isSame, detail: partition },
    { name: "saved-size", ok: isLonger, detail: size },
  ];
}

/** Peaks as the files have them. */
export function peakTexts(peaks: Uint8Array): string[] {
  const texts: string[] = [];
  for (let at = 0; at < peaks.length; at += hashBytes) texts.push(toHex(peaks.subarray(at, at + hashBytes)));
  return texts;
}

/** Hashes one after the other. */
export function join(hashes: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(hashes.length * hashBytes);
  for (const [i, hash] of hashes.entries()) out.set(hash, i * hashBytes);
  return out;
}
