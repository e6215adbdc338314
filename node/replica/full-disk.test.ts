import { expect, test } from "bun:test";
import { MemoryDisk, MemoryLogStore } from "#store";
import { FullDisk } from "./full-disk.ts";

test("a disk counts as full when it has been for a while, and as free at once", () => {
  const disk = new MemoryDisk();
  const full = new FullDisk(new MemoryLogStore(disk));
  const looks = (count: number) => Array.from({ length: count }, () => full.look());
  expect(looks(3)).toEqual([false, false, false]);
  disk.isFull = true;
  expect(looks(2)).toEqual([false, false]);
  disk.isFull = false;
  expect(looks(1)).toEqual([false]);
  disk.isFull = true;
  expect(looks(4)).toEqual([false, false, true, true]);
  disk.isFull = false;
  expect(looks(1)).toEqual([false]);
});
