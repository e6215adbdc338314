/** Writes what tools can put right by themselves: generated code, format, import order, simple lint. */
import { bun, show } from "./command.ts";

const commands = [
  [bun, "scripts/gen.ts"],
  ["buf", "format", "-w"],
  ["biome", "check", "--write", "--max-diagnostics=50"],
  ["oxlint", "--type-aware", "--fix"],
];

let failed = 0;
for (const command of commands) if ((await show(command)) !== 0) failed++;
process.exitCode = failed === 0 ? 0 : 1;
