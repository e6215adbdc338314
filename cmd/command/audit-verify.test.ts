import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeHistory, proofOf, rootFileOf } from "../audit/history-fixture.ts";
import { Output, type OutputOptions } from "../output.ts";
import { bufferSink } from "../sink-fixture.ts";
import { auditVerify, type VerifyOptions } from "./audit-verify.ts";

const made = makeHistory();
let dir = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "hop-verify-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

async function verify(proof: string, options: VerifyOptions = {}, form: Partial<OutputOptions> = {}) {
  const file = join(dir, "proof.json");
  await writeFile(file, proof);
  const out = bufferSink();
  const err = bufferSink();
  const output = new Output({ out, err, env: {}, ...form });
  const code = await auditVerify({ output, interrupt: new AbortController().signal, env: {} }, options, file);
  return { code, out: out.text(), err: err.text() };
}

async function rootFile(text: string): Promise<string> {
  const file = join(dir, "root.json");
  await writeFile(file, text);
  return file;
}

test("a proof of each event holds, and says who did what when", async () => {
  for (const seq of made.events.keys()) expect((await verify(proofOf(made, seq))).code).toBe(0);
  const { out } = await verify(proofOf(made, 0));
  expect(out).toContain("event  0 of run/default:order-1 (4 events)\n");
  expect(out).toContain('what   RunStarted order {"id":1}\n');
  expect(out).toContain("who    ada (unverified)\n");
  expect(out).toContain("when   2026-02-02T02:40:00.000Z\n");
});

test("a proof that was changed in any character does not hold", async () => {
  const text = proofOf(made, 1);
  const held: string[] = [];
  for (let at = 0; at < text.length; at++) {
    const char = text[at] as string;
    const put = char === "0" ? "1" : "0";
    if (/\s/.test(char)) continue;
    const { code, err } = await verify(text.slice(0, at) + put + text.slice(at + 1));
    if (code !== 1 || !err.includes("does not hold")) held.push(`character ${at}: ${code} ${err}`);
  }
  expect(held).toEqual([]);
});

test("a proof is held against a kept root", async () => {
  const same = await rootFile(rootFileOf(made, 4));
  expect((await verify(proofOf(made, 2), { root: same })).code).toBe(0);
  const other = await rootFile(rootFileOf(makeHistory("run/default:order-2"), 4));
  const refused = await verify(proofOf(made, 2), { root: other });
  expect(refused.code).toBe(1);
  expect(refused.err).toContain('The saved root is of "run/default:order-2"');
});

test("a root file that was changed is refused, not used", async () => {
  const broken = await rootFile(
    rootFileOf(made, 4)
      .replace(/"root": "./, '"root": "0')
      .replace(/"root": "00/, '"root": "01'),
  );
  await expect(verify(proofOf(made, 2), { root: broken })).rejects.toThrow("it is no root file that can be relied on");
});

test("programs get the checks as JSON", async () => {
  const { out } = await verify(proofOf(made, 2), {}, { format: "json" });
  expect(JSON.parse(out)).toMatchObject({
    ok: true,
    checks: expect.arrayContaining([expect.objectContaining({ name: "path", ok: true })]),
  });
});

test("what is no proof file is said to be none", async () => {
  const { code, err } = await verify("not JSON");
  expect(code).toBe(1);
  expect(err).toContain("Cannot read the proof file");
});
