/**
 * Uploads blobs soon after an event that names them is committed, where its shard is led, and
 * does not wait until the event is sealed.
 *
 * What is left to do is told by the log and remembered nowhere else: sealing has uploaded what is
 * named up to `sealedThrough`, so whoever begins to lead goes on behind that.
 */
import { asIndex, errorText, type ShardId, toHex } from "#core/base";
import type { LogStore } from "#store";
import { Rounds } from "../rounds.ts";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import type { BlobUploads } from "./blob-uploads.ts";
import { noteBlobs } from "./event-blobs.ts";
import { pacedScan } from "./paced-scan.ts";
import type { SealableShard } from "./sealer.ts";

export interface BlobUploaderParts {
  readonly uploads: BlobUploads;
  readonly log: Pick<LogStore, "scanMany">;
  readonly shards: () => Iterable<SealableShard>;
  /** Bundles of deployments, where this node is to upload them. */
  readonly bundles: () => Iterable<Uint8Array>;
  readonly isReady: () => boolean;
  readonly timing: Timing;
  readonly note: Note;
}

const lookMs = 500;
const pauseMs = { min: 1000, max: 60_000 };
/** Records are looked through in parts of so many bytes: what was uploaded of them is not looked through again. */
const partBytes = 4 << 20;

export class BlobUploader {
  private readonly parts: BlobUploaderParts;
  /** Of each shard that is led here: what records through there name is uploaded. */
  private readonly through = new Map<ShardId, number>();
  private readonly rounds: Rounds;

  constructor(parts: BlobUploaderParts) {
    this.parts = parts;
    this.rounds = new Rounds({
      timing: parts.timing,
      everyMs: lookMs,
      round: () => this.round(),
      failed: (error, inMs) => parts.note("warn", "blobs are not uploaded, and tried again", { inMs, reason: errorText(error) }),
      pauseMs,
    });
  }

  start(): void {
    this.rounds.start();
  }

  stop(): void {
    this.rounds.stop();
  }

  private async round(): Promise<void> {
    const { shards, bundles, uploads, isReady } = this.parts;
    if (!isReady()) return;
    const led = [...shards()];
    for (const shard of this.through.keys()) if (!led.some((each) => each.shard === shard)) this.through.delete(shard);
    const works = [...led.map((shard) => this.follow(shard)), uploads.ensure([...bundles()].map(toHex))];
    for (const outcome of await Promise.allSettled(works)) if (outcome.status === "rejected") throw outcome.reason;
  }

  private async follow(led: SealableShard): Promise<void> {
    const { shard, through } = led;
    for (;;) {
      const begin = Math.max(this.through.get(shard) ?? 0, led.header().sealedThrough);
      if (begin >= through || this.rounds.isStopped) return;
      const { last, blobs } = await this.namedBehind(shard, begin, through);
      await this.parts.uploads.ensure(blobs);
      this.through.set(shard, last);
    }
  }

  private async namedBehind(shard: ShardId, begin: number, through: number): Promise<{ last: number; blobs: ReadonlySet<string> }> {
    const blobs = new Set<string>();
    let bytes = 0;
    for await (const records of pacedScan(this.parts, shard, { from: asIndex(begin + 1), end: asIndex(through + 1) })) {
      for (const { kind, body } of records) {
        if (kind === "data" && body.length > 0) noteBlobs(body, blobs);
        bytes += body.length;
      }
      const last = records.at(-1)?.index;
      if (last !== undefined && bytes >= partBytes) return { last, blobs };
    }
    return { last: through, blobs };
  }
}
