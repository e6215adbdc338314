/** Stored bytes that are not the bytes that were written: never repaired by guessing, never read past in silence. */
import { HopError, type Index, type ShardId } from "#core/base";

export interface Damage {
  readonly file: string;
  /** First byte that can't be trusted. */
  readonly offset: number;
  /** Record that is (or ought to be) there, where the file is a log. */
  readonly shard?: ShardId | undefined;
  readonly index?: Index | undefined;
  readonly got: string;
  readonly want: string;
}

export class CorruptionError extends HopError {
  override name = "CorruptionError";
  readonly damage: Damage;

  constructor(attempt: string, damage: Damage, advice: string) {
    super(
      "HASH_MISMATCH",
      `Cannot ${attempt}: ${damage.file} is damaged at ${place(damage)}: got ${damage.got}, want ${damage.want}; ${advice}`,
    );
    this.damage = damage;
  }
}

function place(damage: Damage): string {
  const record = damage.index === undefined ? "" : ` (record ${damage.index} of shard ${damage.shard})`;
  return `byte ${damage.offset}${record}`;
}
