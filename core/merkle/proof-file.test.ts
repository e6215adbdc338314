import { expect, test } from "bun:test";
import { toHex } from "#core/base";
import {
  type Check,
  consistencyChecks,
  consistencyProof,
  historyChecks,
  inclusionProof,
  isVerified,
  NodeList,
  parseProofFile,
  parseSavedRoot,
  peaksOf,
  proofFileText,
  rootOf,
  type SavedRoot,
  savedRootText,
  verifyProofFile,
} from "#core/merkle";
import { decodeEvent, encodeEvent, fromBytes, toBytes } from "#proto";
import { bunHasher, digest, nobleHasher } from "../../tests/hashers.ts";
import { sampleHistory, samplePartition } from "../../tests/sample-events.ts";

const { events, hashes } = sampleHistory(bunHasher, 26);
const nodes = new NodeList(bunHasher, hashes);

function textOf(seq: number, size: number): string {
  const proof = inclusionProof(nodes, { seq, size });
  if ("reject" in proof) throw new Error(proof.message);
  return proofFileText({ partition: samplePartition, event: events[seq] as Uint8Array, proof, root: rootOf(nodes, size, bunHasher) });
}

function savedAt(size: number): SavedRoot {
  return { partition: samplePartition, size, peaks: peaksOf(nodes, size), root: rootOf(nodes, size, bunHasher) };
}

const failed = (checks: readonly Check[]) => checks.filter((check) => !check.ok).map((check) => check.name);
const isSpace = (byte: number) => byte === 32 || byte === 10 || byte === 9 || byte === 13;

/** Every byte of `text` changed in eight ways: one for each bit. */
function* byteChanges(text: string): Generator<{ at: number; from: number; to: number; text: string }> {
  const bytes = new TextEncoder().encode(text);
  const decoder = new TextDecoder();
  for (let at = 0; at < bytes.length; at++) {
    for (let bit = 0; bit < 8; bit++) {
      const copy = bytes.slice();
      const from = copy[at] as number;
      const to = from ^ (1 << bit);
      copy[at] = to;
      yield { at, from, to, text: decoder.decode(copy) };
    }
  }
}

test("a proof file of every event in every size is verified, by another hasher too", () => {
  for (let size = 1; size <= 26; size++) {
    for (let seq = 0; seq < size; seq++) {
      const checks = verifyProofFile(textOf(seq, size), (seq + size) % 5 === 0 ? nobleHasher : bunHasher, savedAt(size));
      expect([seq, size, failed(checks)]).toEqual([seq, size, []]);
    }
  }
  expect(verifyProofFile(textOf(3, 5), bunHasher).map((check) => check.name)).toEqual([
    "format",
    "event",
    "decoded",
    "size",
    "path",
    "root",
  ]);
});

test("a proof file reads well", () => {
  const file = JSON.parse(textOf(1, 3));
  const root = toHex(rootOf(nodes, 3, nobleHasher));
  expect(file).toEqual({
    format: "hopskip-proof/1",
    partition: samplePartition,
    seq: 1,
    size: 3,
    event: toHex(events[1] as Uint8Array),
    decoded: {
      time: "2027-01-15T08:00:00.000Z",
      timeMs: 1_800_000_000_000,
      logical: 1,
      kind: 16,
      kindName: "activityScheduled",
      schemaId: 1,
      identity: { issuer: "core", subject: "", verified: false, causeSeq: 0 },
      payloadBytes: fromBytes(decodeEvent, events[1] as Uint8Array).payload.length,
      prevHash: toHex(hashes[0] as Uint8Array),
    },
    path: [toHex(hashes[0] as Uint8Array)],
    peaks: [toHex(nodes.node(2)), toHex(nodes.node(3))],
    root,
  });
  expect(verifyProofFile(textOf(1, 3), bunHasher).at(-1)).toEqual({
    name: "root",
    ok: true,
    detail: `the proof stands on the root ${root}`,
  });
});

test("every byte of a proof file that is changed is found and named, or is white space for white space", () => {
  for (const [seq, size] of [
    [0, 1],
    [1, 4],
    [9, 26],
  ] as const) {
    const text = textOf(seq, size);
    const same = verifyProofFile(text, bunHasher);
    let found = 0;
    for (const change of byteChanges(text)) {
      const checks = verifyProofFile(change.text, bunHasher);
      const isSame = isSpace(change.from) && isSpace(change.to) && isVerified(checks);
      if (isSame) expect(checks).toEqual(same);
      else expect([change.at, change.to, isVerified(checks)]).toEqual([change.at, change.to, false]);
      if (!isSame) found++;
    }
    expect(found).toBeGreaterThan(text.length * 6);
  }
});

test("every byte of a root file that is changed is found on reading, or when it is held against the history", () => {
  for (const size of [1, 4, 7]) {
    const text = savedRootText(savedAt(size));
    for (const change of byteChanges(text)) {
      const saved = parseSavedRoot(change.text, bunHasher);
      if ("problem" in saved) continue;
      const isSame = isSpace(change.from) && isSpace(change.to);
      if (isSame) expect(saved).toEqual(savedAt(size));
      else expect(failed(historyChecks(saved, { partition: samplePartition, nodes }, bunHasher))).toEqual(["saved-partition"]);
    }
  }
});

test("a field changed for another valid value fails the check that names it", () => {
  const good = JSON.parse(textOf(2, 7));
  const other = "11".repeat(32);
  const of = (change: object) => failed(verifyProofFile(JSON.stringify({ ...good, ...change }), bunHasher));
  expect(of({})).toEqual([]);
  expect(of({ partition: "run/default:b" })).toEqual(["event"]);
  expect(of({ seq: 3 })).toEqual(["event", "path"]);
  expect(of({ seq: 7 })).toEqual(["event", "size"]);
  const late = verifyProofFile(JSON.stringify({ ...good, seq: 7 }), bunHasher);
  expect(late.at(-1)).toEqual({ name: "size", ok: false, detail: "Event 7 is not among 7 events" });
  expect(of({ size: 11 })).toEqual(["size"]);
  expect(of({ size: 8 })).toEqual(["size"]);
  expect(of({ size: 2 ** 31 + 2 ** 30 + 2 ** 29 })).toEqual(["size"]);
  expect(of({ size: 13 })).toEqual(["size"]);
  expect(of({ path: good.path.toReversed() })).toEqual(["path"]);
  expect(of({ path: [] })).toEqual(["size"]);
  expect(of({ path: [...good.path, other] })).toEqual(["size"]);
  expect(of({ peaks: good.peaks.toReversed() })).toEqual(["path", "root"]);
  expect(of({ peaks: good.peaks.with(2, other) })).toEqual(["root"]);
  expect(of({ peaks: good.peaks.slice(1) })).toEqual(["size"]);
  expect(of({ root: other })).toEqual(["root"]);
  expect(of({ decoded: { ...good.decoded, timeMs: 1 } })).toEqual(["decoded"]);
  expect(of({ decoded: null })).toEqual(["decoded"]);
  const forged = toBytes(encodeEvent, { ...fromBytes(decodeEvent, events[2] as Uint8Array), schemaId: 7 });
  expect(of({ event: toHex(forged), decoded: { ...good.decoded, schemaId: 7 } })).toEqual(["path"]);
  expect(of({ event: "ff" })).toEqual(["event", "path"]);
  expect(of({ event: "" })).toEqual(["event", "decoded", "path"]);
});

test("a text that is not the one way to write its values is refused, with the reason", () => {
  const text = textOf(1, 3);
  const problem = (changed: string) => {
    const checks = verifyProofFile(changed, bunHasher);
    expect(checks.map(({ name, ok }) => ({ name, ok }))).toEqual([{ name: "format", ok: false }]);
    return checks[0]?.detail.replace("Cannot read the proof file: ", "");
  };
  expect(problem("")).toBe("it is not JSON");
  expect(problem("[]")).toBe("it is not a JSON object");
  expect(problem("null")).toBe("it is not a JSON object");
  expect(problem(`${text}x`)).toBe("it is not JSON");
  expect(problem(text.slice(0, -3))).toBe("it is not JSON");
  expect(problem(`\ufeff${text}`)).toBe("it is not JSON");
  expect(problem(text.replace('"seq"', '"Seq"'))).toBe('it has the unknown field "Seq"');
  expect(problem(text.replace('"seq"', '"__proto__"'))).toBe('it has the unknown field "__proto__"');
  expect(problem(text.replace('  "seq": 1,\n', ""))).toBe('it has no field "seq"');
  expect(problem(text.replace('"seq": 1,', '"note": 1, "seq": 1,'))).toBe('it has the unknown field "note"');
  expect(problem(text.replace('"seq": 1,', '"seq": 9, "seq": 1,'))).toStartWith(
    "a field is there twice, or a value is not in its plain form, near ",
  );
  expect(problem(text.replace('"logical"', '"logical": 9, "logical"'))).toStartWith("a field is there twice");
  expect(problem(text.replace('  "seq": 1,\n  "size": 3,', '  "size": 3,\n  "seq": 1,'))).toStartWith(
    "its fields are not in the order format, partition, ",
  );
  for (const seq of ["1.0", "1e0", "10e-1"])
    expect(problem(text.replace('"seq": 1', `"seq": ${seq}`))).toStartWith("a field is there twice, or a value");
  for (const seq of ["-1", "1.5", '"1"', "null", "9007199254740993"])
    expect(problem(text.replace('"seq": 1', `"seq": ${seq}`))).toBeDefined();
  expect(problem(text.replace('"run/', '"\\u0072un/'))).toStartWith("a field is there twice, or a value is not in its plain form");
  expect(problem(text.replace('"run/', '"run\\/'))).toStartWith("a field is there twice, or a value is not in its plain form");
  expect(problem(text.replace("hopskip-proof/1", "hopskip-proof/2"))).toBe('its format is "hopskip-proof/2", want "hopskip-proof/1"');
  expect(problem(text.replace(/"root": "(\w+)"/, (all, root: string) => all.replace(root, root.toUpperCase())))).toBe(
    "its root is not a hash of 64 lower-case hex digits",
  );
  expect(problem(text.replace(/"event": "\w/, '"event": "'))).toBe("its event is not lower-case hex");
  expect(problem(text.replace(/"path": \[[^\]]*\]/, '"path": ["00"]'))).toBe("its path is not hashes of 64 lower-case hex digits each");
  expect(problem(text.replace(/"peaks": \[[^\]]*\]/, '"peaks": 7'))).toBe("its peaks are not hashes of 64 lower-case hex digits each");
  expect(problem(text.replace(/"partition": "[^"]*"/, '"partition": 7'))).toBe("its partition is not a text");
  expect(problem(text.replace('"size": 3', '"size": 1e400'))).toBeDefined();
});

test("white space between the parts changes nothing", () => {
  const text = textOf(5, 26);
  const want = verifyProofFile(text, bunHasher);
  expect(verifyProofFile(JSON.stringify(JSON.parse(text)), bunHasher)).toEqual(want);
  expect(verifyProofFile(`\r\n\t ${JSON.stringify(JSON.parse(text), null, "\t")} \n`, bunHasher)).toEqual(want);
});

test("a partition's name survives the file whatever it holds", () => {
  for (const partition of ['run/a:"\\', "run/a: \u2028", "run/a:\u0001", "run/a:é́🐇", "run/a:__proto__", "run/a:<!--"]) {
    const event = toBytes(encodeEvent, { partition, timeMs: 9e15, kind: 4000, prevHash: new Uint8Array(32) });
    const list = new NodeList(bunHasher, [digest(event)]);
    const proof = inclusionProof(list, { seq: 0, size: 1 });
    if ("reject" in proof) throw new Error(proof.message);
    const text = proofFileText({ partition, event, proof, root: rootOf(list, 1, bunHasher) });
    expect(failed(verifyProofFile(text, bunHasher))).toEqual([]);
    expect(parseProofFile(text)).toMatchObject({ partition, event, proof });
  }
});

test("the name of a kind may come from an older or a newer version", () => {
  const text = textOf(11, 13);
  expect(failed(verifyProofFile(text.replace('"kindName": ""', '"kindName": "nameOfALaterVersion"'), bunHasher))).toEqual([]);
  expect(failed(verifyProofFile(text.replace('"kindName": ""', '"kindName": 7'), bunHasher))).toEqual(["decoded"]);
  const known = textOf(0, 13);
  expect(failed(verifyProofFile(known.replace('"runStarted"', '""'), bunHasher))).toEqual([]);
  expect(failed(verifyProofFile(known.replace('"runStarted"', '"runStartes"'), bunHasher))).toEqual(["decoded"]);
});

test("a proof is held against a saved root", () => {
  const detail = (saved: SavedRoot) => verifyProofFile(textOf(2, 7), bunHasher, saved).filter((check) => check.name === "saved-root");
  expect(detail(savedAt(7))).toEqual([{ name: "saved-root", ok: true, detail: "the proof stands on the saved root" }]);
  expect(detail({ ...savedAt(7), partition: "run/default:b" })[0]?.ok).toBe(false);
  expect(detail({ ...savedAt(7), root: new Uint8Array(32) })[0]?.ok).toBe(false);
  expect(detail(savedAt(6))).toEqual([
    {
      name: "saved-root",
      ok: false,
      detail: "The saved root is of 6 events, the proof of 7: prove that size, or audit against the saved root",
    },
  ]);
});

test("a saved root is read back, and one that does not fit together is refused", () => {
  for (let size = 0; size <= 26; size++) expect(parseSavedRoot(savedRootText(savedAt(size)), nobleHasher)).toEqual(savedAt(size));
  const good = savedAt(6);
  expect(parseSavedRoot(savedRootText({ ...good, size: 4 }), bunHasher)).toEqual({ problem: "it has 2 peaks, want 1 for 4 events" });
  expect(parseSavedRoot(savedRootText({ ...savedAt(4), size: 8 }), bunHasher)).toHaveProperty("problem");
  expect(parseSavedRoot(savedRootText({ ...good, root: new Uint8Array(32) }), bunHasher)).toEqual({
    problem: `its root is ${"00".repeat(32)}, but its peaks give ${toHex(good.root)}`,
  });
  expect(parseSavedRoot(textOf(0, 1), bunHasher)).toEqual({ problem: 'it has the unknown field "seq"' });
});

test("a later history or root is consistent with every root saved before it, and with no other", () => {
  for (let size = 0; size <= 26; size++) {
    expect(failed(historyChecks(savedAt(size), { partition: samplePartition, nodes }, bunHasher))).toEqual([]);
    const proof = consistencyProof(nodes, { fromSize: size, toSize: 26 });
    if ("reject" in proof) throw new Error(proof.message);
    const later = { ...savedAt(26), paths: proof.paths };
    expect(failed(consistencyChecks(savedAt(size), later, bunHasher))).toEqual([]);
    if (size === 0) continue;
    const rewritten = new NodeList(bunHasher, hashes.with(size - 1, new Uint8Array(32)));
    expect(failed(historyChecks(savedAt(size), { partition: samplePartition, nodes: rewritten }, bunHasher))).toEqual([
      "saved-consistency",
    ]);
    const peaks = peaksOf(rewritten, 26);
    const root = rootOf(rewritten, 26, bunHasher);
    expect(failed(consistencyChecks(savedAt(size), { ...later, peaks, root }, bunHasher))).toEqual(["saved-consistency"]);
  }
  const cut = new NodeList(bunHasher, hashes.slice(0, 20));
  expect(historyChecks(savedAt(26), { partition: samplePartition, nodes: cut }, bunHasher).at(-1)).toEqual({
    name: "saved-size",
    ok: false,
    detail: "the root was saved at 26 events, now there are 20",
  });
  expect(failed(historyChecks(savedAt(3), { partition: "run/default:b", nodes }, bunHasher))).toEqual(["saved-partition"]);
});

test("nothing checked is nothing verified", () => {
  expect(isVerified([])).toBe(false);
});

test("of a root from before a known range nothing can be said, and that is no consent", () => {
  const checks = historyChecks(savedAt(3), { partition: samplePartition, nodes, firstSeq: 4 }, bunHasher);
  expect(failed(checks)).toEqual(["saved-consistency"]);
  expect(checks.at(-1)?.detail).toContain("nothing can be said of it");
  expect(failed(historyChecks(savedAt(4), { partition: samplePartition, nodes, firstSeq: 4 }, bunHasher))).toEqual([]);
});
