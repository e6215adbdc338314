/**
 * The executable's entry, and the only place that ends the process.
 *
 * What every start pays for is kept small: the version is printed before anything else is
 * loaded, and each command loads its own code.
 */
import { version } from "./version.ts";

const args = process.argv.slice(2);

if (args.length === 1 && (args[0] === "--version" || args[0] === "-V")) {
  process.stdout.write(`hop ${version}\n`);
} else {
  const { main } = await import("./main.ts");
  process.exit(await main(args));
}
