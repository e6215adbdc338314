import { afterAll, afterEach, beforeEach, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type AssetFolder, extractFolder } from "./folder.ts";

let base: string;
let folder: AssetFolder;

const hashOf = (bytes: Uint8Array | string) => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "hop-assets-"));
  const program = Buffer.from("#!/bin/sh\necho it runs\n");
  const script = Buffer.from("x".repeat(100_000));
  writeFileSync(join(base, "program.zst"), Bun.zstdCompressSync(program));
  writeFileSync(join(base, "script"), script);
  folder = {
    name: "host",
    sha256: hashOf("all"),
    files: [
      {
        name: "program",
        sha256: hashOf(program),
        bytes: program.length,
        compression: "zstd",
        executable: true,
        file: join(base, "program.zst"),
      },
      {
        name: "lib/script",
        sha256: hashOf(script),
        bytes: script.length,
        compression: "none",
        executable: false,
        file: join(base, "script"),
      },
    ],
  };
});

afterEach(() => rmSync(base, { recursive: true, force: true }));

test("extractFolder() writes every file with its bytes, and programs run from there", async () => {
  const path = await extractFolder(join(base, "a", "cache"), folder);
  expect(path).toBe(join(base, "a", "cache", `host-${folder.sha256.slice(0, 16)}`));
  expect(spawnSync(join(path, "program"), { encoding: "utf8" }).stdout).toBe("it runs\n");
  expect(readFileSync(join(path, "lib/script"), "utf8")).toBe("x".repeat(100_000));
  expect(statSync(path).mode & 0o777).toBe(0o700);
});

test("extractFolder() leaves what is there alone: the second time reads neither the executable nor the files", async () => {
  const cache = join(base, "cache");
  const path = await extractFolder(cache, folder);
  const before = statSync(join(path, "program"));
  rmSync(join(base, "program.zst"));
  expect(await extractFolder(cache, folder)).toBe(path);
  expect(statSync(join(path, "program"))).toMatchObject({ ino: before.ino, mtimeMs: before.mtimeMs });
});

test("extractFolder() puts a changed, shortened or removed file right", async () => {
  const cache = join(base, "cache");
  const path = await extractFolder(cache, folder);
  const want = readFileSync(join(path, "lib/script"), "utf8");
  const { atime, mtime } = statSync(join(path, "lib/script"));
  writeFileSync(join(path, "lib/script"), want.replace("x", "y"));
  utimesSync(join(path, "lib/script"), atime, mtime);
  await extractFolder(cache, folder);
  expect(readFileSync(join(path, "lib/script"), "utf8")).toBe(want);
  writeFileSync(join(path, "lib/script"), "x");
  rmSync(join(path, "program"));
  await extractFolder(cache, folder);
  expect(readFileSync(join(path, "lib/script"), "utf8")).toBe(want);
  expect(existsSync(join(path, "program"))).toBe(true);
});

test("extractFolder() may run many times at once", async () => {
  const cache = join(base, "cache");
  const fixture = join(base, "extract.ts");
  const module = JSON.stringify(join(import.meta.dir, "folder.ts"));
  writeFileSync(
    fixture,
    `import { extractFolder } from ${module};\nconsole.log(await extractFolder(${JSON.stringify(cache)}, ${JSON.stringify(folder)}));\n`,
  );
  const children = Array.from({ length: 6 }, () => Bun.spawn([process.execPath, fixture], { stdout: "pipe", stderr: "inherit" }));
  const paths = await Promise.all(
    children.map(async (child) => ((await child.exited) === 0 ? (await child.stdout.text()).trim() : "failed")),
  );
  expect(new Set(paths)).toEqual(new Set([join(cache, `host-${folder.sha256.slice(0, 16)}`)]));
  expect(readdirSync(paths[0] as string).sort()).toEqual([".verified.json", "lib", "program"]);
});

test("extractFolder() refuses bytes that are not those the build saw, and leaves none behind", async () => {
  writeFileSync(join(base, "script"), "y".repeat(100_000));
  const cache = join(base, "cache");
  await expect(extractFolder(cache, folder)).rejects.toThrow(/The executable is damaged: its lib\/script has SHA-256 \w{64}, want \w{64}/);
  expect(readdirSync(join(cache, readdirSync(cache)[0] as string), { recursive: true })).toEqual(["program"]);
});

test("extractFolder() says what to do where the cache can't be a folder", async () => {
  writeFileSync(join(base, "file"), "");
  await expect(extractFolder(join(base, "file"), folder)).rejects.toThrow(
    /Cannot extract the native parts to .*: ENOTDIR.*; name a folder that can be written to in HOP_CACHE/,
  );
});

test("extractFolder() does not trust a folder that others may write to", async () => {
  const path = join(base, "cache", `host-${folder.sha256.slice(0, 16)}`);
  mkdirSync(path, { recursive: true });
  chmodSync(path, 0o777);
  await expect(extractFolder(join(base, "cache"), folder)).rejects.toThrow(/others may write there/);
});

const mounted = join(tmpdir(), `hop-noexec-${process.pid}`);
const canMount = (() => {
  mkdirSync(mounted);
  return spawnSync("mount", ["-t", "tmpfs", "-o", "noexec,size=1m", "tmpfs", mounted]).status === 0;
})();

afterAll(() => {
  if (canMount) spawnSync("umount", [mounted]);
  rmSync(mounted, { recursive: true });
});

test.skipIf(!canMount)("extractFolder() says so where programs may not run [needs the right to mount]", async () => {
  await expect(extractFolder(mounted, folder)).rejects.toThrow(
    /programs may not run from there \(is it mounted noexec\?\); name another folder in HOP_CACHE/,
  );
});
