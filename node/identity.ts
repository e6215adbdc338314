/**
 * Who a data folder is: the cluster it belongs to and its number there.
 *
 * `node.json` is written once, when the node becomes a member, and stays; only the version that
 * wrote the folder last changes. A folder without it belongs to nobody: it may join, or begin a
 * cluster, and holds no log yet. Folders of before there were clusters hold a file `cluster-id`
 * instead; they are refused, since their log does not say who decides for it.
 */
import fs from "node:fs";
import { join } from "node:path";
import { asNodeId, HopError, type NodeId } from "#core/base";
import { isVersion, minorsAhead } from "./version.ts";

export interface NodeIdentity {
  readonly clusterId: string;
  readonly nodeId: NodeId;
}

/** With the version that wrote the folder last. */
export interface FolderIdentity extends NodeIdentity {
  readonly version: string;
}

export const identityFile = "node.json";
const singleNodeFile = "cluster-id";
const format = 1;
const clusterForm = /^hop_[0-9a-f]{16}$/;
const nodeIdMax = 2 ** 32 - 1;

export const isClusterId = (text: string) => clusterForm.test(text);

/** Draws the name of a new cluster. */
export const newClusterId = () => `hop_${Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex")}`;

/**
 * Who the folder is, or undefined for one that belongs to nobody. Changes nothing.
 *
 * Throws `HopError`: STORE_UNAVAILABLE where it can't be read, HASH_MISMATCH where it is damaged,
 * BAD_REQUEST where `version` may not touch it.
 */
export function readIdentity(dataDir: string, version: string): FolderIdentity | undefined {
  const path = join(dataDir, identityFile);
  requireOfClusters(dataDir, version);
  const text = read(path);
  if (text === undefined) {
    requireNoLog(dataDir, path);
    return undefined;
  }
  const identity = parse(path, text, version);
  requireOlder(dataDir, identity.version, version);
  return identity;
}

/**
 * Makes `identity` the folder's, written by `version`, durably. Does nothing where it is that already.
 *
 * Throws `HopError` BAD_REQUEST for a folder that is somebody else, STORE_UNAVAILABLE where it can't be written.
 */
export function writeIdentity(dataDir: string, identity: NodeIdentity, version: string): void {
  const found = readIdentity(dataDir, version);
  if (found !== undefined) {
    requireCluster(dataDir, found, identity.clusterId);
    if (found.nodeId !== identity.nodeId)
      throw new HopError("BAD_REQUEST", `Cannot use ${dataDir}: it is node ${found.nodeId} of its cluster, want node ${identity.nodeId}`);
    if (found.version === version) return;
  }
  const { clusterId, nodeId } = identity;
  writeDurably(dataDir, `${JSON.stringify({ format, clusterId, nodeId, version })}\n`);
}

/** Throws `HopError` BAD_REQUEST for a folder of another cluster. */
export function requireCluster(dataDir: string, identity: NodeIdentity, clusterId: string): void {
  if (identity.clusterId === clusterId) return;
  throw new HopError(
    "BAD_REQUEST",
    `Cannot use ${dataDir}: it is of cluster ${identity.clusterId}, want ${clusterId}; start the node with an empty data folder, or with that cluster's seeds`,
  );
}

function parse(path: string, text: string, version: string): FolderIdentity {
  let value: { format?: unknown; clusterId?: unknown; nodeId?: unknown; version?: unknown } | null;
  try {
    value = JSON.parse(text) as typeof value;
  } catch (error) {
    throw damaged(path, `it is no JSON: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null || !Number.isInteger(value.format)) throw damaged(path, "it names no format");
  if ((value.format as number) > format) {
    const by = typeof value.version === "string" ? ` by Hopskip ${value.version}` : "";
    throw new HopError(
      "BAD_REQUEST",
      `Cannot use ${path}: it was written${by} in format ${String(value.format)}, and Hopskip ${version} reads up to ${format}; start it with the newer version`,
    );
  }
  const { clusterId, nodeId, version: wroteLast } = value;
  if (typeof clusterId !== "string" || !isClusterId(clusterId)) throw damaged(path, "its clusterId is not hop_ and 16 hex digits");
  if (!Number.isInteger(nodeId) || (nodeId as number) < 1 || (nodeId as number) > nodeIdMax)
    throw damaged(path, `its nodeId is not a number from 1 to ${nodeIdMax}`);
  if (typeof wroteLast !== "string") throw damaged(path, "it names no version");
  return { clusterId, nodeId: asNodeId(nodeId as number), version: wroteLast };
}

/** One minor back is a rollback and works; more may meet data that is not understood. */
function requireOlder(dataDir: string, wroteLast: string, version: string): void {
  const ahead = minorsAhead(version, wroteLast);
  if (ahead <= 1) return;
  if (!isVersion(version))
    throw new HopError("BAD_REQUEST", `Cannot use ${dataDir}: ${JSON.stringify(version)} is no version, want major.minor.patch`);
  if (!isVersion(wroteLast)) throw damaged(join(dataDir, identityFile), `${JSON.stringify(wroteLast.slice(0, 40))} is no version`);
  throw new HopError(
    "BAD_REQUEST",
    `Cannot use ${dataDir}: Hopskip ${wroteLast} wrote it last, and ${version} goes back at most one minor version; start it with a newer version`,
  );
}

/** A log that belongs to nobody has lost its name: to go on would make a second cluster of it. */
function requireNoLog(dataDir: string, path: string): void {
  let entries: string[];
  try {
    entries = fs.readdirSync(join(dataDir, "log"));
  } catch (error) {
    if (isMissing(error)) return;
    throw unavailable("read", join(dataDir, "log"), error);
  }
  if (entries.length > 0) throw damaged(path, "it is missing, though the folder holds a log");
}

function requireOfClusters(dataDir: string, version: string): void {
  if (read(join(dataDir, singleNodeFile)) === undefined) return;
  throw new HopError(
    "BAD_REQUEST",
    `Cannot use ${dataDir}: a Hopskip of before there were clusters wrote it, and Hopskip ${version} can't go on with its runs; start it with the version that wrote it, or give this one an empty data folder`,
  );
}

function read(path: string): string | undefined {
  try {
    return fs.readFileSync(path, "utf8");
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw unavailable("read", path, error);
  }
}

function writeDurably(dataDir: string, text: string): void {
  const path = join(dataDir, identityFile);
  const temporary = `${path}.new`;
  try {
    writeSynced(temporary, text);
    fs.renameSync(temporary, path);
    const folder = fs.openSync(dataDir, "r");
    try {
      fs.fsyncSync(folder);
    } finally {
      fs.closeSync(folder);
    }
  } catch (error) {
    throw unavailable("write", path, error);
  }
}

function writeSynced(path: string, text: string): void {
  const fd = fs.openSync(path, "w", 0o600);
  try {
    fs.writeSync(fd, text);
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === "ENOENT";

const damaged = (path: string, what: string) => new HopError("HASH_MISMATCH", `Cannot read ${path}: ${what}; restore it from a copy`);

const unavailable = (verb: string, path: string, error: unknown) =>
  new HopError("STORE_UNAVAILABLE", `Cannot ${verb} ${path}: ${(error as Error).message}`, { cause: error });
