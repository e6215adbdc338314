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
  /** Begins the keys of the cluster's objects, where its id does not: it was rebuilt from them. */
  readonly objects?: string;
  /** Times that it was rebuilt from object storage, and 1; left out: 1. */
  readonly restoreEpoch?: number;
}

/** With the version that wrote the folder last. */
export interface FolderIdentity extends NodeIdentity {
  readonly version: string;
}

export const identityFile = "node.json";
const singleNodeFile = "cluster-id";
const format = 1;
/** Of a folder whose cluster was rebuilt: older versions would look for its objects in the wrong place. */
const restoredFormat = 2;
const clusterForm = /^hop_[0-9a-f]{16}$/;
const nodeIdMax = 2 ** 32 - 1;

/** Of the first node of a new cluster. */
export const newIdentity = (): NodeIdentity => ({ clusterId: newClusterId(), nodeId: asNodeId(1) });

/** What begins the keys of the objects of the node's cluster. */
export const objectsOf = ({ clusterId, objects }: Pick<NodeIdentity, "clusterId" | "objects">) => objects ?? clusterId;

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
 * `isNew`: the folder was built for it, and is nobody's yet, whatever is in it.
 *
 * Throws `HopError` BAD_REQUEST for a folder that is somebody else, STORE_UNAVAILABLE where it can't be written.
 */
export function writeIdentity(dataDir: string, identity: NodeIdentity, version: string, options: { readonly isNew?: boolean } = {}): void {
  const found = options.isNew === true ? undefined : readIdentity(dataDir, version);
  if (found !== undefined) {
    requireCluster(dataDir, found, identity.clusterId);
    if (found.nodeId !== identity.nodeId)
      throw new HopError("BAD_REQUEST", `Cannot use ${dataDir}: it is node ${found.nodeId} of its cluster, want node ${identity.nodeId}`);
    if (found.version === version) return;
  }
  const { clusterId, nodeId, objects, restoreEpoch } = { ...found, ...identity };
  const restored = restoreEpoch === undefined ? { format } : { format: restoredFormat, objects, restoreEpoch };
  writeDurably(dataDir, `${JSON.stringify({ ...restored, clusterId, nodeId, version })}\n`);
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
  let value: { readonly [name in "format" | "clusterId" | "nodeId" | "version" | "objects" | "restoreEpoch"]?: unknown } | null;
  try {
    value = JSON.parse(text) as typeof value;
  } catch (error) {
    throw damaged(path, `it is no JSON: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null || !Number.isInteger(value.format)) throw damaged(path, "it names no format");
  if ((value.format as number) > restoredFormat) {
    const by = typeof value.version === "string" ? ` by Hopskip ${value.version}` : "";
    throw new HopError(
      "BAD_REQUEST",
      `Cannot use ${path}: it was written${by} in format ${String(value.format)}, and Hopskip ${version} reads up to ${restoredFormat}; start it with the newer version`,
    );
  }
  const { clusterId, nodeId, version: wroteLast } = value;
  if (typeof clusterId !== "string" || !isClusterId(clusterId)) throw damaged(path, "its clusterId is not hop_ and 16 hex digits");
  if (!Number.isInteger(nodeId) || (nodeId as number) < 1 || (nodeId as number) > nodeIdMax)
    throw damaged(path, `its nodeId is not a number from 1 to ${nodeIdMax}`);
  if (typeof wroteLast !== "string") throw damaged(path, "it names no version");
  const identity = { clusterId, nodeId: asNodeId(nodeId as number), version: wroteLast };
  if (value.format === format) return identity;
  const { objects, restoreEpoch } = value;
  if (typeof objects !== "string" || !isClusterId(objects)) throw damaged(path, "its objects are not hop_ and 16 hex digits");
  if (!Number.isSafeInteger(restoreEpoch) || (restoreEpoch as number) < 2) throw damaged(path, "its restoreEpoch is not a number from 2");
  return { ...identity, objects, restoreEpoch: restoreEpoch as number };
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
