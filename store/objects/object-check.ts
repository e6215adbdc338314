/**
 * The preflight: proves with a few objects that a store keeps what is built upon, before anything
 * is entrusted to it. There are S3 servers that take a condition, ignore it, and say 200.
 */
import { bytesEqual, HopError } from "#core/base";
import type { BackedObjectStore } from "./backed-object-store.ts";
import { ObjectRefusal, type Problem } from "./object-error.ts";

const bytesOf = (text: string) => new TextEncoder().encode(text);

/**
 * Puts, reads, lists and removes probes under `check/`. Rejects with an `ObjectRefusal` that says
 * what the store lacks, or as the store's own calls do.
 */
export async function checkObjectStore(store: BackedObjectStore): Promise<void> {
  const folders = Array.from({ length: store.keyDepth - 1 }, (_, at) => (at === 0 ? "check" : "probe"));
  const keyOf = (name: string) => [...folders, `${crypto.randomUUID()}-${name}`].join("/");
  const keys = { whole: keyOf("whole"), parts: keyOf("parts") };
  try {
    await checkCondition(store, keys.whole, {});
    await checkCondition(store, keys.parts, { inParts: true });
    // Old or not, a listing has to be possible.
    for await (const _ of store.list(`${folders[0] ?? ""}`)) break;
  } finally {
    await store.delete(Object.values(keys)).catch(() => {});
  }
  await store.delete(Object.values(keys));
  if ((await store.get(keys.whole)) !== undefined) throw lacking(store, "unsupported", "an object that was deleted is still read");
}

async function checkCondition(store: BackedObjectStore, key: string, how: { readonly inParts?: true }): Promise<void> {
  const first = bytesOf(`first ${key}`);
  const second = bytesOf(`second ${key}`);
  const found = await store.get(key);
  if (found !== undefined) throw new HopError("INTERNAL", `Cannot check ${store.url}: probe ${key} is there already`);
  await store.put(key, first, { ifAbsent: true, ...how });
  const outcome = await store.put(key, second, { ifAbsent: true, ...how });
  const read = await store.get(key);
  const isOverwritten = read !== undefined && bytesEqual(read, second);
  if (outcome !== "conflict" || isOverwritten) {
    const where = how.inParts ? "uploads in parts" : "writes";
    throw lacking(store, "unsupported", `it ignores conditions on ${where} (If-None-Match), so two nodes could overwrite each other`);
  }
  if (read === undefined || !bytesEqual(read, first)) throw lacking(store, "unsupported", "a read does not see the write before it");
  const part = await store.get(key, { range: { begin: 2, end: 5 } });
  if (part === undefined || !bytesEqual(part, first.subarray(2, 5)))
    throw lacking(store, "unsupported", "it can't read a part of an object");
}

function lacking(store: BackedObjectStore, problem: Problem, what: string): ObjectRefusal {
  return new ObjectRefusal(problem, `Cannot use object storage ${store.url}: ${what}; use a server that does`);
}
