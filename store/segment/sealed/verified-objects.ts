/** Reads of the two objects of a segment whose bytes are given out only when they have the hash that they should have. */
import { asShardId, toHex } from "#core/base";
import { CodecError } from "#proto";
import { CorruptionError } from "../../corruption-error.ts";
import { decodeDirectory, type Extent, type SegmentDirectory } from "./segment-directory.ts";
import { type SegmentSummary, sealedFormat } from "./summary.ts";

export type SealedObject = "segment" | "index";

/** Where the two objects are. */
export interface SealedObjects {
  /** What messages call them. */
  readonly segment: string;
  readonly index: string;
  /** Bytes [at, at + bytes) of one of them. What it rejects with is passed on. */
  read(object: SealedObject, at: number, bytes: number): Promise<Uint8Array>;
}

/** What is wrong where. */
export interface SealedDamage {
  readonly object: SealedObject;
  readonly at: number;
  readonly got: string;
  readonly want: string;
}

/** Read when it is first wanted, and again where that failed. */
class Once<T> {
  private value: Promise<T> | undefined;

  get(read: () => Promise<T>): Promise<T> {
    if (this.value !== undefined) return this.value;
    const value = read();
    this.value = value;
    value.catch(() => {
      this.value = undefined;
    });
    return value;
  }
}

export class VerifiedObjects {
  readonly summary: SegmentSummary;
  /** Asked for so far. */
  bytesRead = 0;
  private readonly objects: SealedObjects;
  private readonly directoryRead = new Once<SegmentDirectory>();
  private readonly filterRead = new Once<Uint8Array>();

  constructor(summary: SegmentSummary, objects: SealedObjects) {
    this.summary = summary;
    this.objects = objects;
  }

  directory(): Promise<SegmentDirectory> {
    return this.directoryRead.get(() => this.readDirectory());
  }

  filter(): Promise<Uint8Array> {
    return this.filterRead.get(async () => this.extent("index", (await this.directory()).filter, "the filter"));
  }

  /** The bytes of `extent`. `what` says what they are. Rejects with `CorruptionError` where they are others. */
  async extent(object: SealedObject, extent: Extent, what: string): Promise<Uint8Array> {
    const bytes = await this.objects.read(object, extent.at, extent.bytes);
    this.bytesRead += bytes.length;
    if (bytes.length !== extent.bytes)
      throw this.damaged(what, { object, at: extent.at, got: `${bytes.length} bytes`, want: `${extent.bytes}` });
    const [got, want] = [toHex(Bun.SHA256.hash(bytes) as Uint8Array), toHex(extent.sha256)];
    if (got !== want) throw this.damaged(what, { object, at: extent.at, got: `SHA-256 ${got}`, want });
    return bytes;
  }

  damaged(what: string, { object, at, got, want }: SealedDamage): CorruptionError {
    const { shard, firstIndex, lastIndex } = this.summary;
    return new CorruptionError(
      `read ${what} of records ${firstIndex}–${lastIndex} of shard ${shard}`,
      { file: this.objects[object], offset: at, got, want },
      "restore the object from a copy",
    );
  }

  /** What `decode` makes of bytes whose hash is right. */
  decoded<T>(what: string, place: Pick<SealedDamage, "object" | "at">, decode: () => T): T {
    try {
      return decode();
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      throw this.damaged(what, { ...place, got: error.message, want: `what format ${sealedFormat} has there` });
    }
  }

  private async readDirectory(): Promise<SegmentDirectory> {
    const { summary } = this;
    const { directoryAt: at, directorySha256: sha256 } = summary;
    if (summary.format !== sealedFormat)
      throw this.damaged("the directory", { object: "index", at, got: `format ${summary.format}`, want: `${sealedFormat}` });
    const bytes = await this.extent("index", { at, bytes: summary.indexBytes - at, sha256 }, "the directory");
    const directory = this.decoded("the directory", { object: "index", at }, () => decodeDirectory(bytes));
    const differs = differenceOf(directory, summary);
    if (differs !== undefined) throw this.damaged("the directory", { object: "index", at, ...differs });
    return directory;
  }
}

/** A directory and a summary whose hashes fit, and that speak of different segments, were not sealed together. */
function differenceOf(directory: SegmentDirectory, summary: SegmentSummary): Pick<SealedDamage, "got" | "want"> | undefined {
  const facts = ({ shard, firstIndex, lastIndex, rows, segmentBytes, segmentSha256 }: SegmentFacts) =>
    `records ${firstIndex}–${lastIndex} of shard ${asShardId(shard)} as ${rows} rows in ${segmentBytes} bytes with SHA-256 ${toHex(segmentSha256)}`;
  const [got, want] = [facts(directory), facts(summary)];
  if (got !== want) return { got, want };
  const end = directory.filter.at + directory.filter.bytes;
  return end === summary.directoryAt ? undefined : { got: `a filter that ends at ${end}`, want: `${summary.directoryAt}` };
}

type SegmentFacts = Pick<SegmentDirectory, "shard" | "firstIndex" | "lastIndex" | "rows" | "segmentBytes" | "segmentSha256">;
