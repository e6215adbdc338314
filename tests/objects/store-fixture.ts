/** Opens the store at argv[2] with what the environment has, uses it, and says in JSON what came of it. */

import { checkObjectStore } from "../../store/objects/object-check.ts";
import { ObjectRefusal } from "../../store/objects/object-error.ts";
import { openObjectStore } from "../../store/objects/open-object-store.ts";

const sdkModules = () => Object.keys(require.cache).filter((path) => path.includes("/@aws-sdk/")).length;

const store = openObjectStore(process.argv[2] as string);
const atOpen = sdkModules();
try {
  await checkObjectStore(store);
  console.log(JSON.stringify({ ok: true, atOpen, loaded: sdkModules() > 0 }));
} catch (error) {
  const problem = error instanceof ObjectRefusal ? error.problem : "none";
  console.log(JSON.stringify({ ok: false, problem, message: (error as Error).message }));
}
await store.close();
