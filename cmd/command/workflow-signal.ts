/** `hop workflow signal`: to one run, or to all that a filter chooses. */
import { randomUUID } from "node:crypto";
import type { Context } from "../context.ts";
import { type ExitCode, UsageError } from "../failure.ts";
import { readInput } from "../input.ts";
import { visible } from "../terminal.ts";
import { isByFilter, type SelectionOptions, verbs } from "./run-selection.ts";
import { onEach } from "./workflow-act.ts";

export interface SignalOptions extends SelectionOptions {
  readonly input?: string;
  readonly id?: string;
}

/** With a filter the one operand is the signal's name. */
export async function workflowSignal(
  context: Context,
  options: SignalOptions,
  first: string,
  second: string | undefined,
): Promise<ExitCode> {
  const { type, query, status, all } = options;
  const isFiltered = [type, query, status].some((each) => each !== undefined) || all === true;
  if (second === undefined && !isFiltered) {
    throw new UsageError(`Cannot signal ${visible(first)}: the signal's name is missing`, {
      next: "name a run and a signal, or a signal and the runs by --type, --query, --status or --all",
    });
  }
  const byFilter = isByFilter(options, second === undefined ? [] : [first]);
  const name = second ?? first;
  const data = (await readInput(options.input)) ?? new TextEncoder().encode("null");
  return onEach(context, options, byFilter ? [] : [first], verbs.signal, async (remote, run) => {
    const id = options.id ?? `signal-${randomUUID()}`;
    const { seq } = await remote.signal({ run, name, payload: { data }, id });
    return { said: `Sent signal ${visible(name)} to ${visible(run)}; it is event ${seq}`, json: { run, signal: name, seq } };
  });
}
