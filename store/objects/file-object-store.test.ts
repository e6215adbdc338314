import { describe, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../tests/until.ts";
import { BackedObjectStore } from "./backed-object-store.ts";
import { FileBackend } from "./file-backend.ts";
import { ObjectRefusal } from "./object-error.ts";
import { bytesOf, key, keysOf, objectStoreSuite, reasonOf, textOf } from "./object-store.suite.ts";
import { openObjectStore } from "./open-object-store.ts";
import type { RetryPolicy } from "./retry.ts";

const quick: RetryPolicy = { triesMax: 2, pauseMsMin: 1, pauseMsMax: 1, tryMs: 30_000, bytesPerSecondMin: 1 << 20 };

const openAt = (dir: string) => new BackedObjectStore(FileBackend.open(dir), { retry: quick });

objectStoreSuite("a folder", async () => {
  const dir = fs.mkdtempSync(join(tmpdir(), "hop-objects-"));
  return {
    partBytes: 1 << 20,
    open: async () => openAt(dir),
    dispose: async () => fs.rmSync(dir, { recursive: true, force: true }),
  };
});

/** A folder of its own, removed afterwards. */
class Folder implements Disposable {
  readonly dir = fs.mkdtempSync(join(tmpdir(), "hop-objects-"));

  [Symbol.dispose](): void {
    fs.rmSync(this.dir, { recursive: true, force: true });
  }

  /** Folders of writers, living or dead. */
  get writers(): string[] {
    const incoming = join(this.dir, ".incoming");
    return fs.existsSync(incoming) ? fs.readdirSync(incoming) : [];
  }
}

function startWriter(dir: string, name: string, rounds: number) {
  return Bun.spawn([process.execPath, join(import.meta.dir, "object-writer-fixture.ts"), dir, name, String(rounds)], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
}

/** Lets writers that are ready go, all at once; gives the keys that each has won. */
async function race(writers: readonly ReturnType<typeof startWriter>[]): Promise<string[][]> {
  const said = writers.map(async (writer) => {
    const lines = await new Response(writer.stdout).text();
    return lines.trim().split("\n").slice(1);
  });
  for (const writer of writers) {
    void writer.stdin.write("go\n");
    await writer.stdin.end();
  }
  return Promise.all(said);
}

describe("a folder of objects", () => {
  test("of two processes that put the same keys, each key has one winner, whose bytes are there", async () => {
    using folder = new Folder();
    const writers = ["a", "b"].map((name) => startWriter(folder.dir, name, 200));
    await until(() => folder.writers.length === 2);
    const won = await race(writers);
    expect(await Promise.all(writers.map((writer) => writer.exited))).toEqual([0, 0]);
    const store = openAt(folder.dir);
    const winners = await Promise.all((await keysOf(store, "")).map(async (each) => `${each} ${textOf(await store.get(each))}`));
    expect(won.flat().sort()).toEqual(winners.sort());
    expect(winners.length).toBe(200);
    expect(won.filter((each) => each.length > 0).length).toBe(2);
    await store.close();
  });

  test("a writer that is killed leaves whole objects only, and what it was writing is cleared", async () => {
    using folder = new Folder();
    const writer = startWriter(folder.dir, "doomed", 1_000_000);
    void writer.stdin.write("go\n");
    await writer.stdin.flush();
    await until(() => fs.existsSync(join(folder.dir, "shard-1/segments/20")));
    writer.kill("SIGKILL");
    await writer.exited;
    expect(folder.writers.length).toBe(1);
    const [dead = ""] = folder.writers;
    fs.writeFileSync(join(folder.dir, ".incoming", dead, "77"), "half an obj");
    const store = openAt(folder.dir);
    expect(folder.writers).not.toContain(dead);
    expect(folder.writers.length).toBe(1);
    const found = await keysOf(store, "");
    expect(found.length).toBeGreaterThan(20);
    for (const each of found) expect(textOf(await store.get(each))).toBe("doomed".padEnd(20_000, "."));
    await store.close();
  });

  test("who opens it leaves a living writer's files alone", async () => {
    using folder = new Folder();
    const first = openAt(folder.dir);
    const second = openAt(folder.dir);
    expect(folder.writers.length).toBe(2);
    expect(await first.put(key("a"), bytesOf("a"))).toBe("stored");
    await first.close();
    await second.close();
    expect(folder.writers).toEqual([]);
  });

  test("a folder that is gone is unavailable, and nothing in it is missing", async () => {
    using folder = new Folder();
    const store = openAt(folder.dir);
    await store.put(key("a"), bytesOf("a"));
    fs.renameSync(folder.dir, `${folder.dir}-away`);
    fs.mkdirSync(folder.dir);
    for (const call of [
      () => store.get(key("a")),
      () => store.head(key("a")),
      () => store.put(key("b"), bytesOf("b")),
      () => store.delete([key("a")]),
      () => keysOf(store, ""),
    ]) {
      expect(await reasonOf(call())).toBe("STORE_UNAVAILABLE");
    }
    fs.rmdirSync(folder.dir);
    fs.renameSync(`${folder.dir}-away`, folder.dir);
    expect(textOf(await store.get(key("a")))).toBe("a");
    await store.close();
  });

  test("a folder of objects that was removed is made again by the next put", async () => {
    using folder = new Folder();
    const store = openAt(folder.dir);
    await store.put(key("a"), bytesOf("a"));
    fs.rmSync(join(folder.dir, "shard-1"), { recursive: true });
    expect(await store.put(key("a"), bytesOf("a"), { ifAbsent: true })).toBe("stored");
    await store.close();
  });

  test("a place that can't be a folder is refused with what is wrong", () => {
    using folder = new Folder();
    fs.writeFileSync(join(folder.dir, "file"), "");
    expect(() => openObjectStore(`file://${folder.dir}/file`)).toThrow(/^Cannot open object folder .*file: /);
    expect(() => openObjectStore(`file://${folder.dir}/no/parent`)).toThrow(/ENOENT/);
  });

  test("opened for reading, nothing of the folder is changed, and it is not made", async () => {
    using folder = new Folder();
    const there = openAt(join(folder.dir, "there"));
    await there.put(key("a"), bytesOf("A"));
    await there.close();
    fs.rmSync(join(folder.dir, "there", ".incoming"), { recursive: true });
    const before = fs.readdirSync(join(folder.dir, "there"), { recursive: true });
    const reader = openObjectStore(`file://${folder.dir}/there`, { forReading: true, retry: quick });
    expect([textOf(await reader.get(key("a"))), await reader.get(key("b")), await keysOf(reader, "")]).toEqual([
      "A",
      undefined,
      [key("a")],
    ]);
    await expect(reader.put(key("b"), bytesOf("B"))).rejects.toThrow("it was opened for reading");
    await expect(reader.delete([key("a")])).rejects.toThrow("it was opened for reading");
    await reader.close();
    expect(fs.readdirSync(join(folder.dir, "there"), { recursive: true })).toEqual(before);
    expect(() => openObjectStore(`file://${folder.dir}/nowhere`, { forReading: true })).toThrow("there is no such folder");
    expect(fs.existsSync(join(folder.dir, "nowhere"))).toBe(false);
  });

  test("a folder that nobody may write to is refused, with what to do", () => {
    expect(() => openObjectStore("file:///sys/kernel")).toThrow(ObjectRefusal);
    expect(() => openObjectStore("file:///sys/kernel")).toThrow(/let the user of this process write to the folder$/);
  });
});
