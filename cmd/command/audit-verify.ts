/**
 * `hop audit verify`: checks a proof file without any server.
 *
 * A proof that holds says that the event is part of the history with the root that it names.
 * Only a root that was kept elsewhere says that this history is the true one.
 */
import { toHex } from "#core/base";
import { isVerified, parseProofFile, verifyProofFile } from "#core/merkle";
import { decodeEvent, fromBytes } from "#proto";
import { showChecks } from "../audit/checks.ts";
import { readRootFile } from "../audit/files.ts";
import { hasher } from "../audit/hasher.ts";
import type { Context, GlobalOptions } from "../context.ts";
import { timeText } from "../event-text.ts";
import { type ExitCode, exit } from "../failure.ts";
import { describe, whoText } from "../history.ts";
import { readText } from "../input.ts";
import type { Output } from "../output.ts";
import { visible } from "../terminal.ts";

export interface VerifyOptions extends GlobalOptions {
  readonly root?: string;
}

export async function auditVerify({ output }: Context, options: VerifyOptions, file: string): Promise<ExitCode> {
  const text = await readText(file);
  const saved = options.root === undefined ? undefined : await readRootFile(options.root);
  const checks = verifyProofFile(text, hasher, saved);
  const ok = isVerified(checks);
  if (!output.isForPeople) output.json({ ok, file, checks });
  else {
    if (ok) showEvent(output, text);
    showChecks(output, checks);
    if (ok)
      output.say(
        output.paintErr("green", `The proof holds${saved === undefined ? "; check it against a root kept elsewhere with --root" : ""}`),
      );
  }
  if (ok) return exit.ok;
  const bad = checks.find((check) => !check.ok);
  output.say(
    `${output.paintErr("red", "error:")} The proof in ${visible(file)} does not hold: ${visible(bad?.detail ?? "nothing could be checked")}`,
  );
  return exit.failed;
}

function showEvent(output: Output, text: string): void {
  const proof = parseProofFile(text);
  if ("problem" in proof) return;
  const event = fromBytes(decodeEvent, proof.event);
  const described = describe(event);
  output.line(`event  ${event.seq} of ${visible(event.partition)} (${proof.proof.size} events)`);
  output.line(`what   ${visible(`${described.name} ${described.summary}`.trim())}`);
  output.line(`who    ${visible(whoText(event.identity))}`);
  output.line(`when   ${timeText(event.timeMs)}`);
  output.line(`root   ${toHex(proof.root)}`);
}
