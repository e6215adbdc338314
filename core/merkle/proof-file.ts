/**
 * The proof file of one event: it is verified without a server.
 *
 * Format (JSON, hex in lower case): format, partition, seq, size, event (canonical bytes),
 * decoded (the envelope for people; it must say what `event` says), path (leaf to peak), peaks
 * (left to right), root. A proof says which root it stands on; whether that is the true one only
 * a root that was saved earlier can tell.
 */
import { bytesEqual, type Hasher, toHex } from "#core/base";
import { CodecError, decodeEvent, type Event, EventKind, fromBytes } from "#proto";
import { type Check, parseRange, peakTexts, type SavedRoot } from "./saved-root.ts";
import { countField, hashesField, hexField, type Problem, parseFields } from "./strict-json.ts";
import { bagPeaks, bitCount, hashBytes, type InclusionProof, peakOver, sizeMax, verifyInclusion } from "./verify.ts";

export interface ProofFile {
  readonly partition: string;
  /** Canonical bytes. */
  readonly event: Uint8Array;
  readonly proof: InclusionProof;
  readonly root: Uint8Array;
}

const format = "hopskip-proof/1";

/** The file's text. Throws `CodecError` when `event` is no event. */
export function proofFileText(file: ProofFile): string {
  const { seq, size, path, peaks } = file.proof;
  const decoded = decodedFields(fromBytes(decodeEvent, file.event));
  const head = { format, partition: file.partition, seq, size, event: toHex(file.event), decoded };
  return `${JSON.stringify({ ...head, path: path.map(toHex), peaks: peakTexts(peaks), root: toHex(file.root) }, null, 2)}\n`;
}

interface ParsedProof extends ProofFile {
  readonly decoded: unknown;
}

/** The proof in `text`, well-formed but not verified, or what is wrong with the text. */
export function parseProofFile(text: string): ParsedProof | Problem {
  const parsed = parseFields(text, ["format", "partition", "seq", "size", "event", "decoded", "path", "peaks", "root"]);
  if ("problem" in parsed) return parsed;
  const { fields } = parsed;
  const range = parseRange(fields, format);
  if ("problem" in range) return range;
  const seq = countField(fields.seq, sizeMax);
  if (seq === undefined) return { problem: `its seq is not an integer from 0 to ${sizeMax}` };
  const event = hexField(fields.event);
  if (event === undefined) return { problem: "its event is not lower-case hex" };
  const path = hashesField(fields.path);
  if (path === undefined) return { problem: "its path is not hashes of 64 lower-case hex digits each" };
  const { partition, size, peaks, root } = range;
  return { partition, event, proof: { seq, size, path, peaks }, root, decoded: fields.decoded };
}

/**
 * Verifies a proof file, offline. Every check that can be made is in the list, and the proof holds
 * when all are ok (`isVerified`). With `saved` the root must be that one.
 */
export function verifyProofFile(text: string, hasher: Hasher, saved?: SavedRoot): Check[] {
  const file = parseProofFile(text);
  if ("problem" in file) return [check("format", `Cannot read the proof file: ${file.problem}`, "")];
  const checks = [check("format", undefined, format), ...eventChecks(file), sizeCheck(file.proof)];
  if (checks.at(-1)?.ok === true) checks.push(pathCheck(file, hasher), rootCheck(file, hasher));
  if (saved !== undefined) checks.push(savedCheck(file, saved));
  return checks;
}

function check(name: string, problem: string | undefined, found: string): Check {
  return { name, ok: problem === undefined, detail: problem ?? found };
}

function eventChecks(file: ParsedProof): Check[] {
  let event: Event;
  try {
    event = fromBytes(decodeEvent, file.event);
  } catch (error) {
    if (error instanceof CodecError) return [check("event", error.message, "")];
    throw error;
  }
  const { partition, proof } = file;
  return [
    check("event", eventProblem(event, partition, proof.seq), `event ${proof.seq} of ${JSON.stringify(partition)}`),
    check("decoded", decodedProblem(file.decoded, event), "the fields for people say what the event's bytes say"),
  ];
}

function eventProblem(event: Event, partition: string, seq: number): string | undefined {
  if (event.partition !== partition) return `The event is of ${JSON.stringify(event.partition)}, the file of ${JSON.stringify(partition)}`;
  return event.seq === seq ? undefined : `The event's seq is ${event.seq}, the file's is ${seq}`;
}

function sizeCheck(proof: InclusionProof): Check {
  const { seq, size, path, peaks } = proof;
  const found = `event ${seq} of ${size}, ${path.length} hashes in the path`;
  if (seq >= size) return check("size", `Event ${seq} is not among ${size} events`, "");
  const peakCount = peaks.length / hashBytes;
  if (peakCount !== bitCount(size)) return check("size", `The range has ${peakCount} peaks, want ${bitCount(size)} for ${size} events`, "");
  const { height } = peakOver(seq, size);
  const problem = path.length === height ? undefined : `The path has ${path.length} hashes, want ${height} for event ${seq} of ${size}`;
  return check("size", problem, found);
}

function pathCheck(file: ProofFile, hasher: Hasher): Check {
  const { proof } = file;
  const leaf = new Uint8Array(hashBytes);
  hasher.sha256(file.event, leaf);
  const isIncluded = verifyInclusion(hasher, { leaf, proof, root: bagPeaks(hasher, proof.size, proof.peaks) });
  const problem = isIncluded ? undefined : `The event's hash ${toHex(leaf)} and the path do not lead to a peak of the range`;
  return check("path", problem, `the event's hash ${toHex(leaf)} leads to a peak of the range`);
}

function rootCheck(file: ProofFile, hasher: Hasher): Check {
  const own = toHex(bagPeaks(hasher, file.proof.size, file.proof.peaks));
  const root = toHex(file.root);
  return check("root", own === root ? undefined : `The root is ${root}, but the peaks give ${own}`, `the proof stands on the root ${root}`);
}

function savedCheck(file: ProofFile, saved: SavedRoot): Check {
  const { size } = file.proof;
  let problem: string | undefined;
  if (file.partition !== saved.partition) {
    problem = `The saved root is of ${JSON.stringify(saved.partition)}, the proof of ${JSON.stringify(file.partition)}`;
  } else if (size !== saved.size) {
    problem = `The saved root is of ${saved.size} events, the proof of ${size}: prove that size, or audit against the saved root`;
  } else if (!bytesEqual(file.root, saved.root)) problem = `The proof stands on ${toHex(file.root)}, but ${toHex(saved.root)} was saved`;
  return check("saved-root", problem, "the proof stands on the saved root");
}

const kindNames = new Map<number, string>(Object.entries(EventKind).map(([name, kind]) => [kind, name]));
const timeMsMax = 8.64e15;

function decodedFields(event: Event, kindName = kindNames.get(event.kind) ?? "") {
  const { timeMs, logical, kind, schemaId, identity } = event;
  const time = timeMs <= timeMsMax ? new Date(timeMs).toISOString() : "";
  const sizes = { payloadBytes: event.payload.length, prevHash: toHex(event.prevHash) };
  return { time, timeMs, logical, kind, kindName, schemaId, identity: identity ?? null, ...sizes };
}

function decodedProblem(decoded: unknown, event: Event): string | undefined {
  const got = JSON.stringify(decoded);
  const want = JSON.stringify(decodedFields(event));
  if (got === want || got === JSON.stringify(decodedFields(event, foreignName(decoded, event.kind)))) return undefined;
  return `The fields for people say ${got}, but the event's bytes say ${want}`;
}

/** The kind's name as another version wrote it: none where it did not know the kind, any where this one does not. */
function foreignName(decoded: unknown, kind: number): string {
  if (kindNames.has(kind) || typeof decoded !== "object" || decoded === null || !("kindName" in decoded)) return "";
  return typeof decoded.kindName === "string" ? decoded.kindName : "";
}
