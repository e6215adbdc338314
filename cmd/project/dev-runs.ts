/**
 * Watches the runs of a development server and says, one line each, which failed, which are
 * blocked at a fault of their code, and which wait for an activity that no worker offers.
 *
 * Runs that failed before it began are not said.
 */
import { RunStatus, type RunSummary } from "#proto";
import { failureText } from "../event-text.ts";
import type { Output } from "../output.ts";
import type { Remote } from "../remote.ts";
import { visible } from "../terminal.ts";

const intervalMs = 1000;
/** Newest runs that are looked at: a look must stay cheap beside many runs. */
const listMax = 100;
const describedMax = 20;
/** A task is offered within moments where anyone offers it. */
const unofferedMs = 2000;

export interface DevRunsParts {
  readonly remote: Pick<Remote, "list" | "describe">;
  readonly namespace: string;
  readonly output: Pick<Output, "say" | "paintErr">;
}

export class DevRuns {
  readonly #parts: DevRunsParts;
  readonly #begunMs = Date.now();
  /** What was said, so that it is said once. */
  #said = new Set<string>();
  #isClosed = false;
  #timer: Timer | undefined;
  #look: Promise<void> = Promise.resolve();

  constructor(parts: DevRunsParts) {
    this.#parts = parts;
    this.#next();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#look;
  }

  #next(): void {
    this.#timer = setTimeout(() => {
      // A server that is about to end has nothing to say any more.
      this.#look = this.look().catch(() => {});
      void this.#look.then(() => {
        if (!this.#isClosed) this.#next();
      });
    }, intervalMs);
  }

  /** Looks once. */
  async look(): Promise<void> {
    const news = new Map<string, string>();
    for (const run of await this.#list(RunStatus.failed)) {
      const key = `failed ${run.run} ${run.generation}`;
      if (run.closedMs >= this.#begunMs) news.set(key, this.#said.has(key) ? "" : await this.#failed(run));
    }
    for (const { run, note, bundle } of await this.#list(RunStatus.blocked))
      news.set(`blocked ${run} ${bundle.join()}`, blockedText(run, note));
    let described = 0;
    for (const run of await this.#list(RunStatus.running)) {
      if (Date.now() - run.startedMs < unofferedMs || described++ >= describedMax) continue;
      for (const { op, waitsFor } of (await this.#parts.remote.describe(run.run)).pending)
        if (waitsFor.startsWith("a worker that offers "))
          news.set(`waits ${run.run} ${run.generation} ${op}`, waitsText(run.run, waitsFor));
    }
    for (const [key, text] of news) if (!this.#said.has(key)) this.#say(text);
    this.#said = new Set(news.keys());
  }

  #say(text: string): void {
    const { output } = this.#parts;
    output.say(`${output.paintErr("yellow", "!")} ${text}`);
  }

  async #list(status: number): Promise<readonly RunSummary[]> {
    const { remote, namespace } = this.#parts;
    return (await remote.list({ namespace, status, type: "", limit: listMax, pageToken: "" })).run;
  }

  async #failed({ run, type }: RunSummary): Promise<string> {
    const { outcome } = await this.#parts.remote.describe(run);
    return `${visible(run)} (${visible(type)}) failed: ${firstLine(failureText(outcome?.failure))}`;
  }
}

const blockedText = (run: string, note: string) => `${visible(run)} is blocked: ${firstLine(note)}`;
const waitsText = (run: string, waitsFor: string) => `${visible(run)} waits for ${visible(waitsFor)}: none is connected`;
const firstLine = (text: string) => visible((text.split("\n")[0] as string).trimEnd());
