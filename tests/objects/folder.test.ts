/** A folder of objects on file systems that are full, that go away, and that are watched. */
import { expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { key, keysOf, randomBytes, reasonOf } from "../../store/objects/object-store.suite.ts";
import { openObjectStore } from "../../store/objects/open-object-store.ts";
import { Mount, tool, whyNoTmpfs } from "../chaos/host.ts";
import { whyNoStrace } from "../chaos/strace.ts";

const noTmpfs = whyNoTmpfs();
const quick = { retry: { triesMax: 2, pauseMsMin: 1, pauseMsMax: 1, tryMs: 30_000, bytesPerSecondMin: 1 << 20 } };
const newFolder = () => fs.mkdtempSync(join(tmpdir(), "hop-objects-"));

test.skipIf(noTmpfs !== undefined)(
  "a full disk is NO_SPACE, leaves no part of an object, and takes objects again when there is space [needs the right to mount]",
  async () => {
    const folder = newFolder();
    await using mount = await Mount.make(join(folder, "disk"), "-t", "tmpfs", "-o", "size=1m", "none");
    const store = openObjectStore(`file://${mount.path}`, quick);
    expect(await store.put(key("small"), randomBytes(100_000))).toBe("stored");
    expect(await reasonOf(store.put(key("large"), randomBytes(1_500_000), { ifAbsent: true }))).toBe("NO_SPACE");
    expect(await keysOf(store, "")).toEqual([key("small")]);
    await store.delete([key("small")]);
    expect(await store.put(key("other"), randomBytes(700_000), { ifAbsent: true })).toBe("stored");
    await store.close();
    fs.rmSync(folder, { recursive: true });
  },
);

test.skipIf(noTmpfs !== undefined)(
  "objects of a file system that is unmounted are unavailable, and missing to nobody [needs the right to mount]",
  async () => {
    const folder = newFolder();
    const mount = await Mount.make(join(folder, "disk"), "-t", "tmpfs", "-o", "size=1m", "none");
    const store = openObjectStore(`file://${mount.path}`, quick);
    await store.put(key("a"), randomBytes(10));
    // Lazily: the store's lock is a file that is in use.
    await tool("umount", "-l", mount.path);
    for (const call of [
      () => store.get(key("a")),
      () => store.head(key("a")),
      () => keysOf(store, ""),
      () => store.put(key("b"), randomBytes(10), { ifAbsent: true }),
    ]) {
      expect(await reasonOf(call())).toBe("STORE_UNAVAILABLE");
    }
    expect(fs.readdirSync(mount.path)).toEqual([]);
    await store.close();
    fs.rmdirSync(mount.path);
    fs.rmSync(folder, { recursive: true });
  },
);

test.skipIf(whyNoStrace() !== undefined)(
  "an object is on the disk before it has its name, and its name is before the put is over [needs strace]",
  async () => {
    const folder = newFolder();
    const log = join(folder, "calls");
    const dir = join(folder, "objects");
    const fixture = join(import.meta.dir, "../../store/objects/object-writer-fixture.ts");
    const trace = ["strace", "-f", "-y", "-o", log, "-e", "trace=fsync,fdatasync,link,linkat,write,writev,pwritev2,sendto"];
    const child = Bun.spawn([...trace, process.execPath, fixture, dir, "a", "1"], { stdin: new Blob(["go\n"]), stdout: "pipe" });
    expect(await new Response(child.stdout).text()).toBe(`ready\n${key(0)} a\n`);
    expect(await child.exited).toBe(0);
    const said = fs.readFileSync(log, "utf8").split("\n");
    const seen = said.flatMap((line) => {
      if (/fsync\(\d+<.*\.incoming\//.test(line)) return ["the bytes are flushed"];
      if (/link(at)?\(.*segments\/0"/.test(line)) return ["the name is given"];
      if (/fsync\(\d+<.*\/shard-1\/segments>/.test(line)) return ["the folder is flushed"];
      return /(write|writev|pwritev2|sendto)\(.*segments\/0 a/.test(line) ? ["the put is over"] : [];
    });
    expect(seen).toEqual(["the bytes are flushed", "the name is given", "the folder is flushed", "the put is over"]);
    fs.rmSync(folder, { recursive: true });
  },
);
