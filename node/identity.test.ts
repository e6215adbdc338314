import { afterAll, describe, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asNodeId, HopError } from "#core/base";
import { identityFile, newClusterId, objectsOf, readIdentity, requireCluster, writeIdentity } from "./identity.ts";
import { compatible, minorsAhead } from "./version.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-identity-"));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

const [a, b] = ["hop_00000000000000aa", "hop_00000000000000bb"];
const folder = () => fs.mkdtempSync(join(root, "d-"));
const put = (dir: string, name: string, text: string) => fs.writeFileSync(join(dir, name), text);
const file = (dir: string) => fs.readFileSync(join(dir, identityFile), "utf8");
const member = { clusterId: a, nodeId: asNodeId(3) };

/** Everything in the folder, to show that nothing was touched. */
const contents = (dir: string) => fs.readdirSync(dir).map((name) => [name, fs.readFileSync(join(dir, name), "utf8")]);

function refusal(work: () => unknown): HopError {
  try {
    work();
  } catch (error) {
    if (error instanceof HopError) return error;
    throw error;
  }
  throw new Error("Nothing was refused");
}

describe("versions", () => {
  test.each([
    ["0.1.0", "0.1.9", true],
    ["0.1.0", "0.2.0", true],
    ["0.3.0", "0.2.7", true],
    ["0.1.0", "0.3.0", false],
    ["1.9.0", "2.0.0", false],
    ["1.2.3-rc.1", "1.3.0+build", true],
    ["1.2", "1.2.0", false],
    ["", "", false],
  ])("%s and %s get along: %p", (one, two, expected) => {
    expect([compatible(one, two), compatible(two, one)]).toEqual([expected, expected]);
  });

  test("are ahead by minors, and by an infinity across majors", () => {
    expect(minorsAhead("0.1.0", "0.4.0")).toBe(3);
    expect(minorsAhead("2.0.0", "1.9.0")).toBe(Number.NEGATIVE_INFINITY);
    expect(minorsAhead("x", "1.9.0")).toBeNaN();
  });
});

describe("the identity of a data folder", () => {
  test("is nobody's in an empty one, and stays what was written", () => {
    const dir = folder();
    expect(readIdentity(dir, "0.1.0")).toBeUndefined();
    expect(fs.readdirSync(dir)).toEqual([]);
    writeIdentity(dir, member, "0.1.0");
    expect(file(dir)).toBe(`{"format":1,"clusterId":"${a}","nodeId":3,"version":"0.1.0"}\n`);
    expect(readIdentity(dir, "0.1.0")).toEqual({ ...member, version: "0.1.0" });
    expect(fs.readdirSync(dir)).toEqual([identityFile]);
    const before = fs.statSync(join(dir, identityFile)).ino;
    writeIdentity(dir, member, "0.1.0");
    expect(fs.statSync(join(dir, identityFile)).ino).toBe(before);
    writeIdentity(dir, member, "0.2.0");
    expect(readIdentity(dir, "0.1.0")?.version).toBe("0.2.0");
  });

  test("of a single node from before there were clusters is refused with the way out, untouched", () => {
    const dir = folder();
    put(dir, "cluster-id", `${a}\n`);
    put(dir, "checkpoint.db", "x");
    const before = contents(dir);
    for (const work of [() => readIdentity(dir, "0.1.0"), () => writeIdentity(dir, member, "0.1.0")])
      expect(refusal(work)).toMatchObject({
        reason: "BAD_REQUEST",
        message: `Cannot use ${dir}: a Hopskip of before there were clusters wrote it, and Hopskip 0.1.0 can't go on with its runs; start it with the version that wrote it, or give this one an empty data folder`,
      });
    expect(contents(dir)).toEqual(before);
  });

  test("names a new cluster differently each time", () => {
    expect(newClusterId()).toMatch(/^hop_[0-9a-f]{16}$/);
    expect(newClusterId()).not.toBe(newClusterId());
  });

  test("is not given to a folder that is somebody else", () => {
    const dir = folder();
    writeIdentity(dir, member, "0.1.0");
    const before = contents(dir);
    expect(refusal(() => writeIdentity(dir, { ...member, clusterId: b }, "0.1.0")).message).toContain(`it is of cluster ${a}, want ${b}`);
    expect(refusal(() => writeIdentity(dir, { ...member, nodeId: asNodeId(4) }, "0.1.0")).message).toContain(
      "it is node 3 of its cluster, want node 4",
    );
    expect(refusal(() => requireCluster(dir, member, b)).reason).toBe("BAD_REQUEST");
    expect(contents(dir)).toEqual(before);
  });

  const versions: readonly (readonly [string, string, string])[] = [
    ["0.3.0", "0.1.0", "Hopskip 0.3.0 wrote it last, and 0.1.0 goes back at most one minor version"],
    ["1.0.0", "0.9.0", "Hopskip 1.0.0 wrote it last"],
    ["0.1.0", "dev", '"dev" is no version'],
  ];
  test.each(versions)("written by %s is refused by %s, untouched", (wrote, reads, message) => {
    const dir = folder();
    writeIdentity(dir, member, wrote);
    const before = contents(dir);
    for (const work of [() => readIdentity(dir, reads), () => writeIdentity(dir, member, reads)]) {
      expect(refusal(work)).toMatchObject({ reason: "BAD_REQUEST", message: expect.stringContaining(message) });
    }
    expect(contents(dir)).toEqual(before);
  });

  test("goes back one minor and forward any number", () => {
    for (const [wrote, reads] of [
      ["0.2.0", "0.1.0"],
      ["0.1.0", "0.9.0"],
      ["0.9.0", "1.0.0"],
    ] as const) {
      const dir = folder();
      writeIdentity(dir, member, wrote);
      writeIdentity(dir, member, reads);
      expect(readIdentity(dir, reads)).toEqual({ ...member, version: reads });
    }
  });

  test("of a cluster that was rebuilt names its objects, in a format that older versions refuse", () => {
    const dir = folder();
    const restored = { ...member, objects: b, restoreEpoch: 2 };
    writeIdentity(dir, restored, "0.2.0", { isNew: true });
    expect(file(dir)).toBe(`{"format":2,"objects":"${b}","restoreEpoch":2,"clusterId":"${a}","nodeId":3,"version":"0.2.0"}\n`);
    expect(readIdentity(dir, "0.2.0")).toEqual({ ...restored, version: "0.2.0" });
    // Whoever knows the member alone changes nothing of that.
    writeIdentity(dir, member, "0.2.1");
    expect(readIdentity(dir, "0.2.1")).toEqual({ ...restored, version: "0.2.1" });
    expect([objectsOf(restored), objectsOf(member)]).toEqual([b, a]);
  });

  test("in a newer format is refused by name, untouched", () => {
    const dir = folder();
    put(dir, identityFile, '{"format":3,"version":"0.2.0","who":"knows"}');
    const before = contents(dir);
    const error = refusal(() => writeIdentity(dir, member, "0.1.0"));
    expect(error.reason).toBe("BAD_REQUEST");
    expect(error.message).toContain("it was written by Hopskip 0.2.0 in format 3, and Hopskip 0.1.0 reads up to 2");
    expect(contents(dir)).toEqual(before);
  });

  const damage: readonly (readonly [string, string])[] = [
    ["", "it is no JSON"],
    ["[]", "it names no format"],
    ["null", "it names no format"],
    ['{"format":1}', "its clusterId"],
    [`{"format":2,"clusterId":"${a}","nodeId":1,"version":"0.1.0"}`, "its objects"],
    [`{"format":2,"clusterId":"${a}","objects":"${b}","restoreEpoch":1,"nodeId":1,"version":"0.1.0"}`, "its restoreEpoch"],
    [`{"format":1,"clusterId":"${a}","nodeId":0,"version":"0.1.0"}`, "its nodeId"],
    [`{"format":1,"clusterId":"${a}","nodeId":1.5,"version":"0.1.0"}`, "its nodeId"],
    [`{"format":1,"clusterId":"${a}","nodeId":4294967296,"version":"0.1.0"}`, "its nodeId"],
    [`{"format":1,"clusterId":"${a}","nodeId":1}`, "it names no version"],
    [`{"format":1,"clusterId":"${a}","nodeId":1,"version":"?"}`, '"?" is no version'],
  ];
  test.each(damage)("that reads %j is damaged, and left alone", (text, message) => {
    const dir = folder();
    put(dir, identityFile, text);
    const error = refusal(() => writeIdentity(dir, member, "0.1.0"));
    expect(error).toMatchObject({ reason: "HASH_MISMATCH", message: expect.stringContaining(message) });
    expect(file(dir)).toBe(text);
  });

  test("that a log has lost is damage: no second cluster is made of it", () => {
    const lost = folder();
    fs.mkdirSync(join(lost, "log"));
    expect(readIdentity(lost, "0.1.0")).toBeUndefined();
    put(join(lost, "log"), "wal-0000000001.log", "x");
    for (const work of [() => readIdentity(lost, "0.1.0"), () => writeIdentity(lost, member, "0.1.0")])
      expect(refusal(work)).toMatchObject({ reason: "HASH_MISMATCH" });
    expect(fs.existsSync(join(lost, identityFile))).toBe(false);
  });

  test("that can't be read or written is unavailable, not missing", () => {
    const dir = folder();
    fs.mkdirSync(join(dir, identityFile));
    expect(refusal(() => readIdentity(dir, "0.1.0")).reason).toBe("STORE_UNAVAILABLE");
    const gone = join(folder(), "gone");
    expect(refusal(() => writeIdentity(gone, member, "0.1.0")).reason).toBe("STORE_UNAVAILABLE");
  });
});
