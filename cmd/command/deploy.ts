/** `hop deploy`: new runs of the workflows start on this code; running ones stay on theirs. */
import { toHex } from "#core/base";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, namespaceName } from "../context.ts";
import { type ExitCode, exit } from "../failure.ts";
import { bundleFile, checkTypes, type FileBundle, shownFile } from "../project/bundles.ts";
import { existingFiles } from "../project/sources.ts";

interface Deployed {
  readonly type: string;
  readonly version: number;
  readonly bundle: string;
  readonly bytes: number;
  readonly file: string;
}

export interface DeployOptions extends GlobalOptions {
  readonly hold?: boolean;
}

export async function deploy(context: Context, options: DeployOptions, files: string[]): Promise<ExitCode> {
  const namespace = namespaceName(options, context.env);
  const bundles: FileBundle[] = [];
  for (const file of existingFiles(files, "workflow file")) bundles.push(await bundleFile(file));
  checkTypes(bundles);
  return withRemote(context, options, async (remote) => {
    const deployed: Deployed[] = [];
    for (const { file, bytes, workflows } of bundles) {
      const reply = await remote.deploy({ namespace, code: bytes, types: [...workflows], held: options.hold ?? false });
      for (const type of workflows)
        deployed.push({ type, version: reply.version, bundle: toHex(reply.bundle), bytes: bytes.length, file: shownFile(file) });
    }
    context.output.list(deployed, {
      columns: [
        { title: "TYPE", value: (one) => one.type, shrink: true },
        { title: "VERSION", value: (one) => String(one.version), align: "right" },
        { title: "BUNDLE", value: (one) => one.bundle.slice(0, 12) },
        { title: "BYTES", value: (one) => String(one.bytes), align: "right" },
        { title: "FILE", value: (one) => one.file, shrink: true },
      ],
      id: (one) => one.bundle,
      json: (one) => one,
      empty: "Nothing was deployed",
    });
    return exit.ok;
  });
}
