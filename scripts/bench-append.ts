/**
 * Measures what an event costs: encoding in place, chain and MMR, against the two hashes alone.
 *
 * Prints nanoseconds of CPU an event, the best of several rounds: the machine may be busy.
 */
import { asIndex, type Hasher, type Partition } from "#core/base";
import { appendEvent, PartitionChain } from "#core/merkle";
import { EventKind, encodeActivityCompleted, Writer } from "#proto";

const hasher: Hasher = { sha256: (data, out) => void Bun.SHA256.hash(data, out) };
const events = 200_000;
const rounds = 9;
const identity = { issuer: "core", causeSeq: 41 };
const payload = { op: 7, attempt: 1, result: { data: new Uint8Array(60).fill(65) }, worker: "worker-1" };
const writer = new Writer(1 << 16);
const partition = "run/default:wf_0123456789abcdef" as Partition;

function append(): number {
  const chain = new PartitionChain(partition);
  let bytes = 0;
  for (let i = 0; i < events; i++) {
    if (writer.at > 60_000) writer.at = 0;
    const record = { writer, index: asIndex(i + 1), hasher };
    const event = { timeMs: 1_800_000_000_000 + i, logical: 0, kind: EventKind.activityCompleted, schemaId: 1, identity };
    bytes = appendEvent(record, chain, { ...event, encode: encodeActivityCompleted, payload }).length;
  }
  return bytes;
}

function hashOnly(bytes: number): void {
  const event = new Uint8Array(bytes);
  const node = new Uint8Array(72);
  const out = new Uint8Array(32);
  for (let i = 0; i < events; i++) {
    hasher.sha256(event, out);
    hasher.sha256(node, out);
  }
}

function best(work: () => void): number {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < rounds; i++) {
    const before = process.cpuUsage();
    work();
    const used = process.cpuUsage(before);
    least = Math.min(least, ((used.user + used.system) * 1000) / events);
  }
  return Math.round(least);
}

const bytes = append();
const whole = best(append);
const hashes = best(() => hashOnly(bytes));
console.log(`appendEvent: ${whole} ns an event of ${bytes} bytes; its two hashes alone: ${hashes} ns; the rest: ${whole - hashes} ns`);
