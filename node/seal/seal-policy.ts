/** When a shard's log is sealed, and how much of it may wait for that. */

export interface SealPolicy {
  /** Sealed when so many bytes of its records are not. */
  readonly bytesMax: number;
  /** Sealed when an event has waited so long. */
  readonly ageMsMax: number;
  /** What is sealed stays in the log as well until the shard's records there have so many bytes: histories are read from nearby then. */
  readonly keptBytes: number;
  /** Bytes of records that may wait while object storage can't be reached, before producers are refused. */
  readonly hotTailBytesMax: number;
  /** How often the shards are looked at. */
  readonly lookMs: number;
}

const MiB = 1 << 20;

export const sealPolicyDefault: SealPolicy = {
  bytesMax: 64 * MiB,
  ageMsMax: 300_000,
  keptBytes: 256 * MiB,
  hotTailBytesMax: 1024 * MiB,
  lookMs: 1000,
};

/** What the configuration says, and for the rest what is usual. */
export const sealPolicyOf = ({ sealing }: { readonly sealing: Partial<SealPolicy> }): SealPolicy => ({ ...sealPolicyDefault, ...sealing });
