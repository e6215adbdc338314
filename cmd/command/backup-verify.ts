/** `hop backup verify`: checks what object storage has of a cluster; needs no server, and changes nothing. */
import type { BackupFault } from "#node";
import type { Context, GlobalOptions } from "../context.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { bytesText } from "../size.ts";
import { visible } from "../terminal.ts";

export interface BackupVerifyOptions extends GlobalOptions {
  readonly objectStore?: string;
  readonly cluster?: string;
}

export async function backupVerify({ output }: Context, options: BackupVerifyOptions): Promise<ExitCode> {
  const url = options.objectStore ?? process.env.HOP_OBJECT_STORE;
  if (url === undefined || url === "") throw new UsageError("Cannot check a backup: want --object-store, as `hop server start` has it");
  const { verifyBackupAt } = await import("#node");
  const faults: BackupFault[] = [];
  const figures = await verifyBackupAt(
    { url, cluster: options.cluster ?? "" },
    {
      tell: (text, done, total) => output.progress().update(`${text} (${done} of ${total})`),
      fault: (fault) => {
        faults.push(fault);
        if (output.isForPeople) output.say(`${output.paintErr("red", "damaged:")} ${visible(fault.key)}: ${visible(fault.what)}`);
        if (output.format === "jsonl") output.json(fault);
      },
    },
  ).finally(() => output.progress().done());
  const ok = faults.length === 0;
  if (output.format === "ids") output.line(figures.cluster);
  else if (!output.isForPeople) output.json({ ok, ...figures, faults: output.format === "json" ? faults : faults.length });
  else {
    const { cluster, shards, manifests, segments, events, histories, blobs, bytes, expired } = figures;
    output.line(
      `${cluster}: ${shards} shards, ${manifests} manifests, ${segments} segments, ${events} events of ${histories} histories, ${expired} of them expired, ${blobs} blobs, ${bytesText(bytes)}`,
    );
    if (ok) output.say(output.paintErr("green", "All of it is there and is what was uploaded"));
    else
      output.say(
        `${output.paintErr("red", "error:")} ${faults.length} ${faults.length === 1 ? "object is" : "objects are"} damaged or missing`,
      );
  }
  return ok ? exit.ok : exit.failed;
}
