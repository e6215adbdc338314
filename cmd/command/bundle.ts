/** `hop bundle`: a workflow file with all it imports, as `hop deploy` would send it. */

import { writeWhole } from "../audit/files.ts";
import type { Context, GlobalOptions } from "../context.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { bundleFile } from "../project/bundles.ts";
import { existingFiles } from "../project/sources.ts";
import { visible } from "../terminal.ts";

export interface BundleOptions extends GlobalOptions {
  readonly out?: string;
}

export async function bundle({ output }: Context, options: BundleOptions, file: string): Promise<ExitCode> {
  const { out } = options;
  if (out === undefined) throw new UsageError("Cannot bundle: want --out FILE, where the bundle is to go");
  const { bytes, hash, workflows } = await bundleFile(existingFiles([file], "workflow file")[0] as string);
  await writeWhole(out, bytes);
  if (output.isForPeople) output.line(`${visible(out)}: ${workflows.join(", ")}, ${bytes.length} bytes, bundle ${hash.slice(0, 12)}`);
  else if (output.format === "ids") output.line(hash);
  else output.json({ bundle: hash, workflows, bytes: bytes.length, file: out });
  return exit.ok;
}
