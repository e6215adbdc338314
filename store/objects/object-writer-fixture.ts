/** Says that it is ready, waits for a line, then puts keys 0 … argv[4] of a folder with `ifAbsent` and prints those it won. */
import { openObjectStore } from "./open-object-store.ts";

const [, , dir = "", name = "", rounds = "0"] = process.argv;
const store = openObjectStore(`file://${dir}`);
const isDoomed = name === "doomed";
process.stdout.write("ready\n");
for await (const _ of console) break;
for (let i = 0; i < Number(rounds); i++) {
  // Each in an order of its own, so that none is always the first.
  const key = `shard-1/segments/${name === "b" ? (i * 7) % Number(rounds) : i}`;
  const bytes = new TextEncoder().encode(isDoomed ? name.padEnd(20_000, ".") : name);
  if ((await store.put(key, bytes, { ifAbsent: true })) === "stored" && !isDoomed) process.stdout.write(`${key} ${name}\n`);
}
await store.close();
