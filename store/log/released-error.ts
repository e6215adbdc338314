/** A record that was released: it is nowhere in the log's files any more, or need not be, and is read from the sealed tier. */
import { HopError, type Index, type ShardId } from "#core/base";

export class ReleasedError extends HopError {
  override name = "ReleasedError";
  readonly shard: ShardId;
  readonly index: Index;
  /** Records up to it are released. */
  readonly released: Index;

  constructor(shard: ShardId, index: Index, released: Index) {
    super(
      "STORE_UNAVAILABLE",
      `Cannot read record ${index} of shard ${shard} from the log: what it held up to ${released} is released; read it from the sealed segments`,
    );
    this.shard = shard;
    this.index = index;
    this.released = released;
  }
}
