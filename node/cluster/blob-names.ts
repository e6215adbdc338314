/** Which of some blobs the records of a node's log name. */
import { asIndex, fromHex } from "#core/base";
import { type LogStore, ReleasedError } from "#store";

/** A hash stands in a message as a field of 32 bytes: behind its length. */
const hashBytes = 32;
/** A log that forgets while it is read is read again; what it forgot is sealed. */
const triesMax = 5;

/**
 * Looks through all that the log has, archive and records that nobody has committed included. It
 * looks for the hashes themselves and not for fields that it knows: what an event of a later
 * version names is found too.
 */
export async function namedBy(log: Pick<LogStore, "shards" | "scan">, wanted: ReadonlySet<string>): Promise<Set<string>> {
  const named = new Set<string>();
  if (wanted.size === 0) return named;
  const search = new HashSearch(wanted);
  for (const shard of log.shards()) {
    for (let tries = 1; ; tries++) {
      try {
        for await (const { body } of log.scan(shard, asIndex(1))) search.note(body, named);
        break;
      } catch (error) {
        if (!(error instanceof ReleasedError) || tries === triesMax) throw error;
      }
    }
  }
  return named;
}

class HashSearch {
  private readonly byHead = new Map<number, { readonly name: string; readonly sha256: Uint8Array }[]>();

  constructor(wanted: ReadonlySet<string>) {
    for (const name of wanted) {
      const sha256 = fromHex(name);
      if (sha256?.length !== hashBytes) continue;
      const head = headAt(sha256, 0);
      const others = this.byHead.get(head);
      if (others === undefined) this.byHead.set(head, [{ name, sha256 }]);
      else others.push({ name, sha256 });
    }
  }

  note(body: Uint8Array, named: Set<string>): void {
    const bytes = Buffer.from(body.buffer, body.byteOffset, body.length);
    for (let at = bytes.indexOf(hashBytes); at >= 0 && at + hashBytes < bytes.length; at = bytes.indexOf(hashBytes, at + 1)) {
      const found = this.byHead.get(headAt(bytes, at + 1));
      if (found === undefined) continue;
      for (const { name, sha256 } of found) if (bytes.compare(sha256, 0, hashBytes, at + 1, at + 1 + hashBytes) === 0) named.add(name);
    }
  }
}

const headAt = (bytes: Uint8Array, at: number) =>
  (bytes[at] as number) | ((bytes[at + 1] as number) << 8) | ((bytes[at + 2] as number) << 16) | ((bytes[at + 3] as number) << 24);
