/**
 * Rebuilds a cluster from object storage alone, on one node that has nothing yet.
 *
 * The order makes it safe to give up at any point: the restore epoch is claimed; all is read, hashed
 * and built beside what the node has; the claim is kept for good; then each shard's next manifest is put under
 * the new epoch, after which a cluster that still lives elsewhere seals nothing any more; then the folder
 * becomes the node's. Until the first of those manifests nothing has changed for anybody, and the claim is withdrawn.
 */
import {
  asNodeId,
  asTerm,
  type Hasher,
  HopError,
  type Index,
  type KeyRange,
  placementShard,
  rangeText,
  type ShardId,
  type Term,
} from "#core/base";
import { PlacementMachine, type RestoredShard, restoredPlacement, type UploadedPlacement, uploadedPlacement } from "#core/placement";
import { noConf } from "#core/raft";
import { bornHeader, encodeHeader } from "#core/shard";
import { encodeConfState, encodePlacementStates, type Identity, type NodeInfo, type ShardHeader, toBytes } from "#proto";
import { type LogStore, type Manifest, ManifestLog, type ObjectStore, type SegmentEntry, type StoredManifest } from "#store";
import { type NodeIdentity, newClusterId, writeIdentity } from "../identity.ts";
import { birthIndex } from "../replica/births.ts";
import { bootstrapGroup } from "../replica/placement-replica.ts";
import { newestPlacement } from "../seal/placement-upload.ts";
import { holdFolder, openStorage, type Storage } from "../storage.ts";
import { realTiming } from "../timing.ts";
import { ClaimBeat } from "./claim-beat.ts";
import { type Claim, claim, keep, requireNewest, withdraw } from "./claims.ts";
import { historyLeads } from "./history-leads.ts";
import { type Owner, ownersOf, restoreOrder } from "./ownership.ts";
import { reuniteMessages } from "./reunion.ts";
import { type ReplayedShard, restoreStates } from "./shard-states.ts";
import { beginStaging, dropStaging, keepStaging } from "./staging.ts";

export interface RestoreParts {
  readonly dataDir: string;
  readonly version: string;
  readonly objects: ObjectStore;
  /** Begins the keys of the cluster's objects. */
  readonly cluster: string;
  readonly info: NodeInfo;
  readonly identity: Identity;
  readonly hasher: Hasher;
  readonly wallMs: () => number;
  readonly warn: (message: string) => void;
  /** How far it is: a line of its own where `total` is 0. */
  readonly tell: (text: string, done: number, total: number) => void;
  readonly signal: AbortSignal;
}

/** Objects that are read to be hashed at a time. */
const readersMax = 4;
const birthTerm = asTerm(1);

/** Resolves with whom the folder is of now. Rejects with `HopError`, and the folder as it was. */
export async function restoreCluster(parts: RestoreParts): Promise<NodeIdentity> {
  const { objects, cluster, dataDir } = parts;
  const clusterId = newClusterId();
  const own = await claim(objects, cluster, { clusterId, nowMs: Math.round(parts.wallMs()) });
  const beat = new ClaimBeat({ objects, cluster, claim: own, timing: realTiming });
  const restore = new Restore(parts, own);
  beat.start();
  try {
    return await restore.run();
  } catch (error) {
    dropStaging(dataDir);
    if (!restore.hasFenced) await withdraw(objects, cluster, own).catch(() => {});
    throw error;
  } finally {
    await beat.stop();
  }
}

/** The clusters that have objects there. */
export async function clustersIn(objects: ObjectStore): Promise<string[]> {
  const found = new Set<string>();
  for (let after: string | undefined; ; ) {
    let next: string | undefined;
    for await (const { key } of objects.list("hop_", after === undefined ? {} : { after })) {
      next = key;
      break;
    }
    if (next === undefined) return [...found];
    const cluster = next.slice(0, next.indexOf("/"));
    found.add(cluster);
    // Behind all of its keys: no key has a segment with such a beginning.
    after = `${cluster}/zzzz`;
  }
}

class Restore {
  /** A manifest of the new epoch may be there. */
  hasFenced = false;
  private readonly parts: RestoreParts;
  private readonly own: Claim;
  private readonly manifests: ManifestLog;
  /** Shards whose states are not taken in. */
  private readonly leftOut = new Set<ShardId>();

  constructor(parts: RestoreParts, own: Claim) {
    this.parts = parts;
    this.own = own;
    this.manifests = new ManifestLog(parts.objects, parts.cluster, parts.hasher);
  }

  async run(): Promise<NodeIdentity> {
    const { dataDir, version, cluster } = this.parts;
    const { states, known } = await this.placement();
    const stored = await this.newestManifests(known);
    await this.checkSegments(stored);
    const dir = await this.buildIn(dataDir, { stored, states, known });
    const identity: NodeIdentity = {
      clusterId: this.own.clusterId,
      nodeId: known.nextNode,
      objects: cluster,
      restoreEpoch: this.own.epoch,
    };
    writeIdentity(dir, identity, version, { isNew: true });
    this.parts.signal.throwIfAborted();
    keepStaging(dataDir);
    return identity;
  }

  /** Returns the folder with all of it, durable. */
  private async buildIn(dataDir: string, found: Found): Promise<string> {
    const dir = beginStaging(dataDir);
    const lock = await holdFolder(dir);
    const { warn } = this.parts;
    const storage = await openStorage(lock, { dataDir: dir, warn, onFlush: () => {}, requireOwn: () => {}, sealed: undefined });
    let isWhole = false;
    try {
      isWhole = await this.build(storage, found);
      await durable(storage.log);
      storage.checkpoint.sync();
    } finally {
      storage.projector.close();
      await storage.close();
    }
    // What was left out took the place of what goes in its stead: it is built anew without.
    return isWhole ? dir : this.buildIn(dataDir, found);
  }

  // What there is.

  private async placement(): Promise<{ states: Uint8Array; known: UploadedPlacement }> {
    const { objects, cluster, hasher } = this.parts;
    const upload = await newestPlacement(objects, cluster, hasher);
    if (upload?.states === undefined)
      throw new HopError(
        "BAD_REQUEST",
        `Cannot restore ${cluster} from ${objects.url}: its placement was never uploaded, so its deployments, namespaces and policies are not known`,
      );
    const states = toBytes(encodePlacementStates, upload.states);
    this.say(
      `Placement: as of ${timeText(upload.timeMs)} (upload ${upload.number} of restore epoch ${upload.restoreEpoch}); what was deployed or set after that is lost`,
    );
    return { states, known: uploadedPlacement(states) };
  }

  private async newestManifests(known: UploadedPlacement): Promise<StoredManifest[]> {
    const shards = new Set<ShardId>([...(await this.manifests.shards()), ...known.shards.map(({ shard }) => shard)]);
    const found: StoredManifest[] = [];
    for (const shard of [...shards].sort((a, b) => a - b)) {
      const stored = await this.manifests.newest(shard);
      if (stored === undefined) continue;
      if (stored.manifest.restoreEpoch >= this.own.epoch) throw later(this.parts.cluster, stored.manifest);
      found.push(stored);
    }
    return found;
  }

  /** Every byte that histories will be read from is there and has its hash. */
  private async checkSegments(all: readonly StoredManifest[]): Promise<void> {
    const { objects, signal, tell } = this.parts;
    const wanted = all.flatMap(({ manifest }) => manifest.segments.flatMap(objectsOf));
    const total = wanted.reduce((sum, { bytes }) => sum + bytes, 0);
    let done = 0;
    const queue = [...wanted];
    const one = async (): Promise<void> => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        signal.throwIfAborted();
        const size = await objects.download(next.key, () => {}, { sha256: next.sha256, signal });
        if (size !== next.bytes)
          throw new HopError(
            "HASH_MISMATCH",
            `Cannot read ${next.key}: a manifest names it with ${next.bytes} bytes, and ${objects.url} has ${size ?? "no such object"}`,
          );
        done += next.bytes;
        tell("Checking sealed segments, bytes", done, total);
      }
    };
    const readers = Array.from({ length: readersMax }, one);
    try {
      await Promise.all(readers);
    } finally {
      // Where one has failed the others end with what they are at.
      queue.length = 0;
      await Promise.allSettled(readers);
    }
  }

  // What is made of it.

  /** False where shards were found whose states can't be used: they are left out from then on. */
  private async build(storage: Storage, { stored, states, known }: Found): Promise<boolean> {
    const leftOut = this.leftOut.size;
    const replayed = await this.takeStates(storage, stored);
    if (this.leftOut.size > leftOut) return false;
    const claimants = [...replayed].map(([shard, { header, stored: each }]) => ({
      shard,
      range: widest(rangeOf(header), each.manifest.checkpoint?.range),
      ancestors: header.ancestor as ShardId[],
    }));
    const owners = ownersOf(claimants, known.lastShard);
    await this.keepClaim();
    const fenced = await this.fence(stored, replayed);
    const shards = owners.map((owner) => this.begin(storage, owner, { replayed, fenced, node: known.nextNode }));
    const kept = new Set(owners.map(({ shard }) => shard));
    for (const shard of new Set([...replayed.keys(), ...storage.projector.shards()])) if (!kept.has(shard)) forget(storage, shard);
    for (const { stored: each } of replayed.values()) this.report(each.manifest, owners);
    for (const owner of owners) if (owner.kind !== "kept") this.reportNew(owner);
    await this.reunite(storage, shards, known);
    this.beginPlacement(storage.log, states, { shards, node: known.nextNode });
    return true;
  }

  /** Shards are of different moments, and so is what their runs have of each other's messages. */
  private reunite(storage: Storage, shards: readonly RestoredShard[], { bundleFor }: UploadedPlacement): Promise<void> {
    const { objects, cluster, hasher, signal, wallMs } = this.parts;
    const say = (text: string) => this.say(text);
    return reuniteMessages({ storage, objects, cluster, hasher, shards, nowMs: Math.round(wallMs()), signal, say, bundleFor });
  }

  private async takeStates(storage: Storage, stored: readonly StoredManifest[]): Promise<Map<ShardId, ReplayedShard>> {
    const { objects, hasher, signal, tell } = this.parts;
    // What was merged away is archive: it has no states of its own any more.
    const live = new Map(
      stored
        .filter(({ manifest: { checkpoint, shard } }) => checkpoint !== undefined && !this.leftOut.has(shard))
        .map((each) => [each.manifest.shard, each]),
    );
    const order = restoreOrder([...live.values()].map(({ manifest }) => manifest));
    const replayed = new Map<ShardId, ReplayedShard>();
    for (const { shard } of order) {
      signal.throwIfAborted();
      tell("Taking in the states of shards", replayed.size, order.length);
      const each = await restoreStates({ objects, storage, hasher, signal }, live.get(shard) as StoredManifest);
      replayed.set(shard, each);
      if (await this.isUnfounded(storage, each, stored)) this.leftOut.add(shard);
    }
    return replayed;
  }

  /**
   * Histories of the shard go on from what its parent had not uploaded, and the parent's states from before the
   * split are there: histories without gaps are worth more than the few newer events of the child.
   */
  private async isUnfounded(
    { checkpoint }: Storage,
    { stored: { manifest }, header }: ReplayedShard,
    all: readonly StoredManifest[],
  ): Promise<boolean> {
    const { shard } = manifest;
    const range = rangeOf(header);
    const through = (log: ShardId) => all.find(({ manifest: each }) => each.shard === log)?.manifest.through ?? 0;
    const gaps = [...(await historyLeads(checkpoint, shard, range))].filter(([log, index]) => index > through(log));
    const [gap] = gaps;
    if (gap === undefined) return false;
    const text = `Shard ${shard}: histories go on from record ${gap[1]} of shard ${gap[0]}, which is uploaded through ${through(gap[0])}`;
    const hasParent = all.some(({ manifest: each }) => header.ancestor.includes(each.shard) && covers(each.checkpoint?.range, range));
    this.say(hasParent ? `${text}: what was uploaded of shard ${shard} is left out` : `${text}: they have a gap there`);
    return hasParent;
  }

  /** Nobody may take this restore for dead any more. */
  private async keepClaim(): Promise<void> {
    const { objects, cluster } = this.parts;
    await requireNewest(objects, cluster, this.own);
    await keep(objects, cluster, this.own);
  }

  /** From here on the cluster that these objects were of seals nothing any more. */
  private async fence(
    stored: readonly StoredManifest[],
    replayed: ReadonlyMap<ShardId, ReplayedShard>,
  ): Promise<Map<ShardId, StoredManifest>> {
    const fenced = new Map<ShardId, StoredManifest>();
    for (const { manifest: before, sha256 } of stored) {
      const { shard } = before;
      const epoch = replayed.get(shard)?.header.epoch ?? before.writer.epoch;
      const manifest: Manifest = {
        ...before,
        number: before.number + 1,
        previous: sha256,
        restoreEpoch: this.own.epoch,
        writer: { node: before.writer.node, epoch },
      };
      this.hasFenced = true;
      const published = await this.manifests.publish(manifest);
      if (published.kind === "lost") throw later(this.parts.cluster, published.to.manifest);
      fenced.set(shard, { manifest, sha256: published.sha256 });
    }
    return fenced;
  }

  /** The shard's log begins behind what is uploaded, with this node as its one member. */
  private begin(
    storage: Storage,
    owner: Owner,
    {
      replayed,
      fenced,
      node,
    }: { replayed: ReadonlyMap<ShardId, ReplayedShard>; fenced: ReadonlyMap<ShardId, StoredManifest>; node: number },
  ): RestoredShard {
    const { log, checkpoint, projector } = storage;
    const { shard, range } = owner;
    const beginning = beginningOf(owner, replayed, fenced.get(shard));
    const { header, index, term, clockMs } = beginning;
    log.setBase(shard, index, term);
    log.setHardState(shard, { term, vote: 0, commit: index });
    const conf = toBytes(encodeConfState, { ...noConf, voters: [asNodeId(node)] });
    checkpoint.save([], { shard, appliedIndex: index, clockMs, conf, header: encodeHeader(header), headerIndex: index, term });
    projector.begin(shard, index);
    return { shard, range, ancestors: header.ancestor as ShardId[], epoch: header.epoch };
  }

  private beginPlacement(log: LogStore, states: Uint8Array, { shards, node }: { shards: readonly RestoredShard[]; node: number }): void {
    const { info, hasher, identity, cluster } = this.parts;
    const nowMs = Math.round(this.parts.wallMs());
    bootstrapGroup(log, placementShard, asNodeId(node));
    const machine = new PlacementMachine({ log, hasher });
    machine.skip(1);
    machine.lead({ term: birthTerm, nowMs });
    const { clusterId, epoch } = this.own;
    machine.restore(restoredPlacement(states, { clusterId, objects: cluster, restoreEpoch: epoch, info, shards, nowMs }), {
      nowMs,
      identity,
    });
    log.setHardState(placementShard, { term: birthTerm, vote: 0, commit: machine.lastIndex });
  }

  // What is told.

  private report({ shard, through, clockMs, segments }: Manifest, owners: readonly Owner[]): void {
    const events = segments.reduce((sum, { summary }) => sum + summary.rows, 0);
    const own = owners.find((each) => each.kind === "kept" && each.shard === shard);
    const keys = own === undefined ? "its keys are other shards' now" : `keys ${rangeText(own.range)}`;
    this.say(`Shard ${shard}: through record ${through}, of ${timeText(clockMs)}, ${events} events; ${keys}; what came after that is lost`);
  }

  private reportNew(owner: Exclude<Owner, { kind: "kept" }>): void {
    const { shard, range } = owner;
    if (owner.kind === "born") this.say(`Shard ${shard}: keys ${rangeText(range)}, with what was uploaded of shard ${owner.from}`);
    else this.say(`Shard ${shard}: keys ${rangeText(range)}, of which nothing was ever uploaded: it begins empty`);
  }

  private say(text: string): void {
    this.parts.tell(text, 0, 0);
  }
}

/** What object storage has. */
interface Found {
  readonly stored: readonly StoredManifest[];
  readonly states: Uint8Array;
  readonly known: UploadedPlacement;
}

interface Beginning {
  readonly header: ShardHeader;
  readonly index: Index;
  readonly term: Term;
  readonly clockMs: number;
}

function beginningOf(owner: Owner, replayed: ReadonlyMap<ShardId, ReplayedShard>, fenced: StoredManifest | undefined): Beginning {
  const from = owner.kind === "empty" ? undefined : (replayed.get(owner.kind === "born" ? owner.from : owner.shard) as ReplayedShard);
  const clockMs = from?.clockMs ?? 0;
  if (owner.kind !== "kept" || from === undefined || fenced === undefined) {
    const ancestors = owner.kind === "born" ? [owner.from, ...(from?.header.ancestor ?? [])] : [];
    const header = bornHeader({ range: owner.range, ancestors, clockMs });
    return { header: { ...header, epoch: from?.header.epoch ?? 0 }, index: birthIndex, term: birthTerm, clockMs };
  }
  const { manifest, sha256 } = fenced;
  const header: ShardHeader = {
    ...from.header,
    ...owner.range,
    // Whoever was to take it in is not there any more, or takes it in anew.
    frozenInto: 0,
    frozenIndex: 0,
    sealedThrough: manifest.through,
    manifest: manifest.number,
    manifestSha256: sha256,
    statesThrough: manifest.checkpoint?.appliedIndex ?? 0,
  };
  return { header, index: from.through, term: from.term, clockMs };
}

const rangeOf = ({ first, last }: ShardHeader): KeyRange => ({ first, last });

const objectsOf = ({ segment, index, summary }: SegmentEntry) => [
  { key: segment, bytes: summary.segmentBytes, sha256: summary.segmentSha256 },
  { key: index, bytes: summary.indexBytes, sha256: summary.indexSha256 },
];

/** A split that was not uploaded everywhere is undone: the keys of the states are the shard's. */
const widest = (a: KeyRange, b: KeyRange = a): KeyRange => ({ first: Math.min(a.first, b.first), last: Math.max(a.last, b.last) });

const covers = (range: KeyRange | undefined, { first, last }: KeyRange) =>
  range !== undefined && range.first <= first && range.last >= last;

/** The shard is none of the new cluster's; its states and rows are their owners'. */
function forget({ checkpoint, projector }: Storage, shard: ShardId): void {
  checkpoint.removeMeta(shard);
  projector.forget(shard, noKeys);
}

const noKeys: KeyRange = { first: 1, last: 0 };

/** Resolves when all that was appended is durable. */
async function durable(log: LogStore): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const look = () => {
    if (log.durablePosition() >= log.position()) resolve();
    else log.kick(true);
  };
  log.onDurable = look;
  log.onPoison = reject;
  log.kick(true);
  look();
  await promise;
}

const timeText = (ms: number) => new Date(ms).toISOString();

const later = (cluster: string, { shard, number, restoreEpoch, writer }: Manifest) =>
  new HopError(
    "ALREADY_MEMBER",
    `Cannot restore ${cluster}: shard ${shard} got manifest ${number} of restore epoch ${restoreEpoch} from node ${writer.node} meanwhile; the cluster still lives, or another restore of it is under way: see that it does not, then restore again`,
  );
