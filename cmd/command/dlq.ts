/** `hop dlq list`, `show`, `replay` and `drop`: compensations that failed for good. */
import { addressText, HopError, type RunAddress, type RunId } from "#core/base";
import type { DeadLetter } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, letterAddress, namespaceName, parseCount } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { failureText, shortHash, timeText } from "../event-text.ts";
import { type ExitCode, exit } from "../failure.ts";
import type { Listing, Output } from "../output.ts";
import { pages } from "../pages.ts";
import { inParallel } from "../parallel.ts";
import { payloadBytes, type Remote } from "../remote.ts";
import { failureJson, payloadJson } from "../shapes.ts";
import { safeText, visible, visibleLines } from "../terminal.ts";
import type { SelectionOptions, Verb } from "./run-selection.ts";
import { onEach } from "./workflow-act.ts";

export interface DlqListOptions extends GlobalOptions {
  readonly limit?: string;
}

const limitDefault = 100;
const limitMax = 100_000;
const pageSize = 100;
/** Descriptions that are asked for at a time. */
const askedMax = 16;

/** A dead letter and the run's name that it is of. */
interface Letter extends DeadLetter {
  readonly run: RunId;
}

/** How a dead letter is named: the sequence of the event that made it, at its run's name. */
const idOf = ({ run, letter }: Letter) => addressText({ run, ticket: letter });

export async function dlqList(context: Context, options: DlqListOptions): Promise<ExitCode> {
  const limit = parseCount(options.limit, "limit", { min: 1, max: limitMax }) ?? limitDefault;
  const namespace = namespaceName(options, context.env);
  return withRemote(context, options, async (remote) => {
    const letters = await lettersOf(remote, namespace, limit + 1);
    context.output.list(letters.slice(0, limit), listing());
    if (letters.length > limit && context.output.isForPeople) context.output.say("There are more: list them with --limit");
    return exit.ok;
  });
}

/** At least `wanted` where there are so many. A name is met once for each of its runs that has some. */
async function lettersOf(remote: Remote, namespace: string, wanted: number): Promise<Letter[]> {
  const letters: Letter[] = [];
  const seen = new Set<string>();
  const withSome = async (pageToken: string) => {
    const { run, nextPageToken } = await remote.list({ namespace, deadLetters: true, limit: pageSize, pageToken });
    return { items: run, next: nextPageToken };
  };
  for await (const rows of pages(withSome)) {
    const fresh = new Set(rows.map(({ run }) => run as RunId)).difference(seen);
    for (const run of fresh) seen.add(run);
    const found = await inParallel([...fresh], askedMax, async (run) => {
      const { deadLetter } = await remote.describe(run);
      return deadLetter.map((letter) => ({ ...letter, run }));
    });
    letters.push(...found.flat());
    if (letters.length >= wanted) break;
  }
  return letters;
}

function listing(): Listing<Letter> {
  const nowMs = Date.now();
  return {
    columns: [
      { title: "LETTER", value: idOf },
      { title: "GEN", value: ({ generation }) => String(generation), align: "right" },
      { title: "TYPE", value: ({ type }) => type, shrink: true },
      { title: "COMPENSATION", value: ({ name }) => name },
      { title: "STATE", value: stateOf },
      { title: "AGE", value: ({ failedMs }) => formatDuration(Math.max(0, nowMs - failedMs)), align: "right" },
      { title: "FAILURE", value: ({ failure }) => failureText(failure), shrink: true },
    ],
    id: idOf,
    json: letterJson,
    empty: "No dead letters",
  };
}

const stateOf = ({ replay }: DeadLetter) => (replay > 0 ? "replaying" : "waiting");

function letterJson(letter: Letter) {
  return {
    letter: idOf(letter),
    run: letter.run,
    generation: letter.generation,
    op: letter.op,
    type: letter.type,
    name: letter.name,
    state: stateOf(letter),
    attempts: letter.attempts,
    failedAt: timeText(letter.failedMs),
    idempotencyKey: letter.options?.idempotencyKey ?? "",
    failure: letter.failure === undefined ? null : failureJson(letter.failure),
  };
}

export async function dlqShow(context: Context, options: GlobalOptions, text: string): Promise<ExitCode> {
  const address = letterAddress(text, options, context.env);
  return withRemote(context, options, async (remote) => {
    const letter = await find(remote, address);
    const input = await payloadBytes(remote, letter.input);
    const { output } = context;
    if (output.format === "ids") output.line(idOf(letter));
    else if (output.isForPeople) show(output, letter, input);
    else output.json({ ...letterJson(letter), input: payloadJson(input) });
    return exit.ok;
  });
}

async function find(remote: Remote, address: RunAddress): Promise<Letter> {
  const { run, ticket: number } = address;
  const found = (await remote.describe(run)).deadLetter.find(({ letter }) => letter === number);
  if (found !== undefined) return { ...found, run };
  throw new HopError(
    "DEAD_LETTER_NOT_FOUND",
    `Cannot show dead letter ${addressText(address)}: there is none, or it was replayed or dropped; see \`hop dlq list\``,
  );
}

function show(output: Output, letter: Letter, input: Uint8Array): void {
  const field = (name: string, value: string) => output.field(name, value, 12);
  field("letter", visible(idOf(letter)));
  field("run", `${visible(letter.run)}, generation ${letter.generation}`);
  field("type", visible(letter.type));
  field("compensation", `${visible(letter.name)}, registered as operation ${letter.op}`);
  const ref = letter.input?.ref;
  field(
    "input",
    ref === undefined ? visible(safeText(new TextDecoder().decode(input))) : `blob ${shortHash(ref.sha256)} of ${ref.size} bytes`,
  );
  field("key", visible(letter.options?.idempotencyKey ?? ""));
  field("state", stateOf(letter));
  field("executions", String(letter.attempts));
  field("failed", timeText(letter.failedMs));
  field("failure", visibleLines(failureText(letter.failure)));
}

/** Dead letters are named one by one. */
const onLetters: Verb = { name: "Act on", statuses: [], addressOf: (...named) => addressText(letterAddress(...named)) };

export function dlqReplay(context: Context, options: SelectionOptions, letters: string[]): Promise<ExitCode> {
  return onEach(context, options, letters, onLetters, async (remote, letter) => {
    await remote.replayDeadLetter(letter);
    return { said: `Dead letter ${visible(letter)} is executed again`, json: { letter, replaying: true } };
  });
}

export function dlqDrop(context: Context, options: SelectionOptions, letters: string[]): Promise<ExitCode> {
  return onEach(context, options, letters, onLetters, async (remote, letter) => {
    await remote.dropDeadLetter(letter, options.reason ?? "");
    return { said: `Dropped dead letter ${visible(letter)}`, json: { letter, dropped: true } };
  });
}
