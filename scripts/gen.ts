/**
 * Generates everything that is generated and committed. `--check` compares instead of writing.
 *
 * proto/gen comes from the schema, the types that `hop init` hands out from the runtime SDK.
 */
import { bun, show } from "./command.ts";

const generators = ["scripts/gen-proto.ts", "scripts/gen-runtime-types.ts"];

for (const script of generators) {
  const code = await show([bun, script, ...process.argv.slice(2)]);
  if (code !== 0) process.exitCode = code;
}
