/**
 * Where a restore builds what a node keeps, until it is whole.
 *
 * The folder `restoring` in the data folder counts for nothing: one that a crash left is deleted. When
 * all is durable in it, one rename makes it `restored`, and what is in that is the node's own: its
 * files move up, the identity last. A crash in between goes on with that when the node starts again.
 */
import fs from "node:fs";
import { join } from "node:path";
import { HopError } from "#core/base";
import { identityFile } from "../identity.ts";

const building = "restoring";
const built = "restored";
const lockFile = "LOCK";

/** An empty folder to build in. Throws `HopError` STORE_UNAVAILABLE. */
export function beginStaging(dataDir: string): string {
  return trying(dataDir, () => {
    const dir = join(dataDir, building);
    fs.rmSync(dir, { recursive: true, force: true });
    fs.mkdirSync(dir, { mode: 0o700 });
    return dir;
  });
}

/** It did not become whole: its space is free again. */
export function dropStaging(dataDir: string): void {
  fs.rmSync(join(dataDir, building), { recursive: true, force: true });
}

/** What was built, closed and durable, is the node's from here on. */
export function keepStaging(dataDir: string): void {
  trying(dataDir, () => {
    const dir = join(dataDir, building);
    syncAll(dir);
    fs.renameSync(dir, join(dataDir, built));
    syncFolder(dataDir);
  });
  finishStaging(dataDir);
}

/** To be called before anything in the folder is used: ends what a crash interrupted. Throws `HopError` STORE_UNAVAILABLE. */
export function finishStaging(dataDir: string): void {
  trying(dataDir, () => {
    fs.rmSync(join(dataDir, building), { recursive: true, force: true });
    const from = join(dataDir, built);
    if (!fs.existsSync(from)) return;
    const names = fs.readdirSync(from).filter((name) => name !== lockFile && name !== identityFile);
    for (const name of names) fs.renameSync(join(from, name), join(dataDir, name));
    syncFolder(dataDir);
    if (fs.existsSync(join(from, identityFile))) fs.renameSync(join(from, identityFile), join(dataDir, identityFile));
    syncFolder(dataDir);
    fs.rmSync(from, { recursive: true, force: true });
  });
}

function syncAll(dir: string): void {
  for (const entry of fs.readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) syncAll(path);
    else if (entry.isFile()) syncFile(path);
  }
  syncFolder(dir);
}

function syncFile(path: string): void {
  const fd = fs.openSync(path, "r+");
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

function syncFolder(dir: string): void {
  const fd = fs.openSync(dir, "r");
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

function trying<T>(dataDir: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw new HopError("STORE_UNAVAILABLE", `Cannot build in data folder ${dataDir}: ${(error as Error).message}`, { cause: error });
  }
}
