/** `hop workflow export`: a run's history in one file, for tests that replay it (`TestEnvironment.replay`). */
import { HopError, toHex } from "#core/base";
import { blobsOf, decodeBody } from "#core/run";
import { decodeEvent, fromBytes } from "#proto";
import { writeWhole } from "../audit/files.ts";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runId } from "../context.ts";
import { type ExitCode, exit } from "../failure.ts";
import type { Remote } from "../remote.ts";
import { visible } from "../terminal.ts";

export interface ExportOptions extends GlobalOptions {
  readonly out?: string;
}

export async function workflowExport(context: Context, options: ExportOptions, run: string): Promise<ExitCode> {
  const id = runId(run, options, context.env);
  return withRemote(context, options, async (remote) => {
    const events: string[] = [];
    const blobs: Record<string, string> = {};
    for await (const { event } of remote.history({ run: id })) {
      for (const bytes of event) {
        events.push(base64(bytes));
        await addBlobs(remote, bytes, blobs);
      }
    }
    if (events.length === 0) throw new HopError("RUN_NOT_FOUND", `Cannot export ${id}: there is no such run`);
    const kept = Object.keys(blobs).length > 0 ? { blobs } : {};
    const text = `${JSON.stringify({ format: "hopskip-history/1", run: id, events, ...kept }, null, 1)}\n`;
    const { output } = context;
    if (options.out === undefined) output.line(text.trimEnd());
    else {
      await writeWhole(options.out, text);
      output.say(`Wrote ${events.length} events of ${visible(id)} to ${visible(options.out)}`);
    }
    return exit.ok;
  });
}

/** Large payloads; the code of the run is the tests' own. */
async function addBlobs(remote: Remote, bytes: Uint8Array, blobs: Record<string, string>): Promise<void> {
  const { kind, payload } = fromBytes(decodeEvent, bytes);
  for (const { sha256, size } of blobsOf(decodeBody(kind, payload)?.body)) {
    const name = toHex(sha256);
    if (size !== undefined && blobs[name] === undefined) blobs[name] = base64(await remote.blob(sha256));
  }
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
