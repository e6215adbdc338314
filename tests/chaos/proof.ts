/**
 * Holds a server's histories against what its clients were promised.
 *
 * `hop audit` proves each history; the events looked at here are those whose hashes it printed.
 */
import { decodeBody, isTerminal, type RunEvent } from "#core/run";
import { decodeEvent, EventKind, fromBytes } from "#proto";
import type { HopClient } from "#sdk/client";
import type { Cluster } from "#tests/cluster";
import type { Ledger, Promised } from "./ledger.ts";

/** Where histories are read. */
export interface Place {
  readonly hop: Cluster;
  readonly server: { readonly grpc: string };
  readonly client: HopClient;
}

export interface Proven {
  readonly seq: number;
  readonly event: RunEvent;
}

const sha256 = (bytes: Uint8Array) => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");

/** A run's events, each with the hash that `hop audit` prints for it. */
export async function provenHistory(at: Place, instance: string): Promise<Proven[]> {
  const run = `${at.client.namespace}:${instance}`;
  const bytes: Uint8Array[] = [];
  for await (const chunk of at.client.history(run)) bytes.push(...chunk.event);
  const audited = JSON.parse(await at.hop.expectOk(["audit", run, "-o", "json"], { server: at.server })) as { events: { hash: string }[] };
  const hashes = audited.events.map(({ hash }) => hash);
  const own = bytes.map(sha256);
  // The run may have gone on between the two.
  const common = Math.min(hashes.length, own.length);
  for (let i = 0; i < common; i++)
    if (hashes[i] !== own[i]) throw new Error(`Event ${i} of ${run} is ${own[i]}, and audited as ${hashes[i]}`);
  return bytes.slice(0, common).map((each, seq) => {
    const event = fromBytes(decodeEvent, each);
    if (event.seq !== seq) throw new Error(`Event ${seq} of ${run} says that it is ${event.seq}`);
    return { seq, event: decodeBody(event.kind, event.payload) as RunEvent };
  });
}

/** What breaks a promise, in words; empty where all is kept. */
export function brokenPromises(instance: string, history: readonly Proven[], promised: Promised): string[] {
  const broken: string[] = [];
  const starts = history.filter(({ event }) => event.kind === EventKind.runStarted).length;
  const ends = history.filter(({ event }) => isTerminal(event.kind)).length;
  if (promised.generation !== undefined && starts < promised.generation) broken.push(`${instance}: its acknowledged start is lost`);
  if (starts > 1) broken.push(`${instance}: started ${starts} times`);
  if (ends > 1) broken.push(`${instance}: ended ${ends} times`);
  const ids = history.flatMap(({ event }) => (event.kind === EventKind.signalReceived ? [event.body.id] : []));
  for (const value of promised.signals) {
    const count = ids.filter((id) => id === `signal-${value}`).length;
    if (count !== 1) broken.push(`${instance}: the acknowledged signal ${value} is in its history ${count} times`);
  }
  const end = history.find(({ event }) => event.kind === EventKind.runCompleted);
  if (promised.result !== undefined) {
    const data = end?.event.kind === EventKind.runCompleted ? end.event.body.result?.data : undefined;
    const result = data === undefined ? undefined : (JSON.parse(new TextDecoder().decode(data)) as unknown);
    if (result !== promised.result) broken.push(`${instance}: its acknowledged result ${promised.result} is now ${String(result)}`);
  }
  return broken;
}

/** Throws where a promise of the ledger is not kept by the server as it is now. */
export async function provePromises(at: Place, ledger: Ledger): Promise<void> {
  const promises = [...ledger.runs].filter(([, promised]) => promised.generation !== undefined);
  const broken: string[] = [];
  const lanes = Array.from({ length: 3 }, async () => {
    for (let next = promises.pop(); next !== undefined; next = promises.pop()) {
      const [instance, promised] = next;
      broken.push(...brokenPromises(instance, await provenHistory(at, instance), promised));
    }
  });
  await Promise.all(lanes);
  if (broken.length > 0) throw new Error(`${broken.length} promises broken:\n${broken.join("\n")}`);
}
