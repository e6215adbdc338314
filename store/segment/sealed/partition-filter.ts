/**
 * Says of a partition that it is not in a segment, or that it may be: a Bloom filter with ten bits and
 * seven probes a partition, wrong for about one in a hundred of those that are not there.
 *
 * Probes are taken from SHA-256 of the name, behind the bits that are its key: all names of a shard
 * share the first of those.
 */
const bitsEach = 10;
const probes = 7;

export function digestOf(name: Uint8Array): Uint8Array {
  return Bun.SHA256.hash(name) as Uint8Array;
}

/** A filter over names, by their digests. */
export function filterOf(digests: readonly Uint8Array[]): Uint8Array {
  const filter = new Uint8Array(Math.ceil((digests.length * bitsEach) / 8));
  for (const digest of digests) {
    for (const bit of bitsOf(digest, filter.length * 8)) filter[bit >> 3] = (filter[bit >> 3] as number) | (1 << (bit & 7));
  }
  return filter;
}

export function mayHold(filter: Uint8Array, digest: Uint8Array): boolean {
  if (filter.length === 0) return false;
  for (const bit of bitsOf(digest, filter.length * 8)) if (((filter[bit >> 3] as number) & (1 << (bit & 7))) === 0) return false;
  return true;
}

function* bitsOf(digest: Uint8Array, bits: number): Generator<number> {
  const view = new DataView(digest.buffer, digest.byteOffset, digest.length);
  const first = view.getUint32(8);
  // Odd, so that probes do not fall together.
  const step = view.getUint32(12) | 1;
  for (let i = 0; i < probes; i++) yield (first + i * (step >>> 0)) % bits;
}
