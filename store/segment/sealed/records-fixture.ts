/** Records of a shard's log without a log, for tests and measurements of sealing. */
import { asIndex, asShardId, asTerm, type Hasher, type Index, type Partition, Prng, type ShardId } from "#core/base";
import { appendEvent, encodeRaw, PartitionChain } from "#core/merkle";
import {
  EventKind,
  encodeActivityCompleted,
  encodeActivityScheduled,
  encodeRunCompleted,
  encodeRunStarted,
  type IdentityInit,
  toBytes,
  Writer,
} from "#proto";
import type { RecordToSeal } from "./record-batch.ts";

const hasher: Hasher = { sha256: (data, out) => void Bun.SHA256.hash(data, out) };
const previousShardTag = 48;

export interface MadeEvent {
  readonly partition: string;
  readonly kind?: number | undefined;
  readonly payload?: Uint8Array | undefined;
  readonly identity?: IdentityInit | undefined;
  /** Encoded fields of numbers between payload and prev_hash. */
  readonly unknown?: Uint8Array | undefined;
}

/** Appends to one shard, and keeps the chains of its partitions. */
export class RecordMaker {
  readonly shard: ShardId;
  readonly records: RecordToSeal[] = [];
  readonly chains = new Map<string, PartitionChain>();
  /** Canonical bytes of all events, by partition, of whatever shard. */
  readonly written: Map<string, Uint8Array[]>;
  term = asTerm(1);
  timeMs = 1_800_000_000_000;
  index: Index;
  private readonly writer = new Writer(1 << 16);

  constructor({ shard = asShardId(1), after = asIndex(0), written = new Map<string, Uint8Array[]>() } = {}) {
    this.shard = shard;
    this.index = after;
    this.written = written;
  }

  record(...events: MadeEvent[]): void {
    const { writer } = this;
    this.index = asIndex(this.index + 1);
    const previousShards = events.map((event) => this.append(event));
    if (previousShards.some((shard) => shard !== 0)) {
      for (const shard of previousShards) {
        writer.varint(previousShardTag);
        writer.varint(shard);
      }
    }
    this.records.push({ index: this.index, term: this.term, kind: "data", body: writer.finish() });
  }

  /** The partitions that `moves` picks go on in `to`'s log. */
  hand(to: RecordMaker, moves: (partition: string) => boolean): void {
    for (const [partition, chain] of this.chains) {
      if (!moves(partition)) continue;
      this.chains.delete(partition);
      const head = chain.head();
      const lastShard = head.lastShard === 0 ? this.shard : head.lastShard;
      to.chains.set(partition, new PartitionChain(partition as Partition, { ...head, lastShard: lastShard === to.shard ? 0 : lastShard }));
    }
    to.timeMs = Math.max(to.timeMs, this.timeMs);
  }

  private append({ partition, kind = EventKind.signalReceived, payload = new Uint8Array(0), identity, unknown }: MadeEvent): number {
    const chain = this.chains.get(partition) ?? new PartitionChain(partition as Partition);
    this.chains.set(partition, chain);
    const { lastShard } = chain;
    const event = { timeMs: ++this.timeMs, logical: this.timeMs & 3, kind, schemaId: 1, identity, encode: encodeRaw, payload };
    let bytes: Uint8Array;
    if (unknown === undefined) bytes = appendEvent({ writer: this.writer, index: this.index, hasher }, chain, event).slice();
    else bytes = this.appendUnknown(chain, event, unknown);
    const written = this.written.get(partition) ?? [];
    this.written.set(partition, written);
    written.push(bytes);
    return lastShard;
  }

  /** As a later version would write it: with fields that this one does not know. */
  private appendUnknown(chain: PartitionChain, event: Parameters<typeof appendEvent<Uint8Array>>[2], unknown: Uint8Array): Uint8Array {
    const { lastIndex } = chain;
    const aside = new Writer();
    const known = appendEvent(
      { writer: aside, index: this.index, hasher },
      new PartitionChain(chain.partition, chain.head()),
      event,
    ).slice();
    const bytes = new Uint8Array(known.length + unknown.length);
    bytes.set(known.subarray(0, -34));
    bytes.set(unknown, known.length - 34);
    bytes.set(known.subarray(-34), known.length - 34 + unknown.length);
    hasher.sha256(bytes, chain.lastHash);
    chain.append(chain.lastHash, hasher);
    chain.lastIndex = this.index;
    chain.lastShard = 0;
    this.writer.field(10, bytes);
    this.writer.varint(16);
    this.writer.varint(lastIndex);
    return bytes;
  }
}

const words = ["reserve", "charge", "ship", "notify", "refund", "approve", "retry", "archive"];
const hex = (prng: Prng, digits: number) => Array.from({ length: digits }, () => prng.below(16).toString(16)).join("");
const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));

/** Runs of about 36 events each, many at once, with payloads like those of orders. Events in records as a busy shard has them. */
export function* busyShard(events: number, maker = new RecordMaker()): Generator<RecordToSeal> {
  const prng = new Prng(1);
  const core = { issuer: "core" };
  const user = { issuer: "https://login.example.com", subject: "auth0|5f7c8ec7c33c6c004bbafe82", verified: true };
  const open: { name: string; step: number }[] = [];
  for (let made = 0; made < events; ) {
    if (open.length < 500) {
      open.push({ name: `run/default:order-${hex(prng, 12)}`, step: 0 });
    }
    const at = prng.below(open.length);
    const run = open[at] as { name: string; step: number };
    const { name: partition, step } = run;
    const input = {
      data: json({ order: hex(prng, 12), sku: `sku-${prng.below(5000)}`, quantity: 1 + prng.below(9), total: prng.below(100_000) / 100 }),
    };
    const name = words[step % words.length] as string;
    const identity = { ...core, causeSeq: step };
    if (step === 0) {
      const payload = toBytes(encodeRunStarted, {
        generation: 1,
        type: "order",
        bundle: new Uint8Array(32).fill(7),
        input,
        seed: prng.below(2 ** 31),
      });
      maker.record({ partition, kind: EventKind.runStarted, payload, identity: user });
      made++;
    } else if (step < 18) {
      const completed = toBytes(encodeActivityCompleted, { op: step, attempt: 1, result: input, worker: `worker-${prng.below(8)}` });
      const scheduled = toBytes(encodeActivityScheduled, { op: step + 1, name, input });
      maker.record(
        { partition, kind: EventKind.activityCompleted, payload: completed, identity: { issuer: "worker", subject: "worker-1" } },
        { partition, kind: EventKind.activityScheduled, payload: scheduled, identity },
      );
      made += 2;
    } else {
      maker.record({ partition, kind: EventKind.runCompleted, payload: toBytes(encodeRunCompleted, {}), identity });
      made++;
      open.splice(at, 1);
    }
    run.step++;
    maker.written.clear();
    yield maker.records.pop() as RecordToSeal;
  }
}
