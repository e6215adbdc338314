/** Groups that sleep, as a node's beat carries them: shard, term and commit of each, as varints. */
import { asIndex, asShardId, asTerm, type Index, type ShardId, type Term } from "#core/base";
import { Reader, Writer } from "#proto";

export interface Sleeper {
  readonly shard: ShardId;
  readonly term: Term;
  readonly commit: Index;
}

export function encodeSleepers(sleepers: readonly Sleeper[]): Uint8Array {
  const w = new Writer(16 * sleepers.length);
  for (const { shard, term, commit } of sleepers) {
    w.varint(shard);
    w.varint(term);
    w.varint(commit);
  }
  return w.finish();
}

/** Throws `CodecError` where the bytes end inside a number. */
export function* decodeSleepers(bytes: Uint8Array): Generator<Sleeper> {
  const reader = new Reader(bytes);
  while (reader.at < bytes.length) {
    yield { shard: asShardId(reader.varint()), term: asTerm(reader.varint()), commit: asIndex(reader.varint()) };
  }
}
