/** Prints the hash of a bundle, for tests that run it from several folders. */
import { bundleWorkflows } from "./bundler.ts";

console.log((await bundleWorkflows({ files: [process.argv[2]!] })).hash);
