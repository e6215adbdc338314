/** A line that is rewritten in place while something lasts: only on a terminal, never in a pipe. */
import { cut, type Paint, type Sink } from "./terminal.ts";

const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const intervalMs = 100;
const eraseLine = "\r\u001b[2K";

export class Progress {
  readonly #sink: Sink;
  readonly #paint: Paint;
  #timer: Timer | undefined;
  #text = "";
  #frame = 0;

  constructor(sink: Sink, paint: Paint) {
    this.#sink = sink;
    this.#paint = paint;
  }

  /** Shows `text`; drawn at most ten times a second. */
  update(text: string): void {
    this.#text = text;
    if (!this.#sink.isTty || this.#timer !== undefined) return;
    this.#draw();
    this.#timer = setInterval(() => this.#draw(), intervalMs);
    this.#timer.unref();
  }

  /** Writes a line above the progress line. */
  line(text: string): void {
    if (this.#timer !== undefined) this.#sink.write(eraseLine);
    this.#sink.write(`${text}\n`);
    if (this.#timer !== undefined) this.#draw();
  }

  /** Takes the line away. */
  done(): void {
    if (this.#timer === undefined) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#sink.write(eraseLine);
  }

  #draw(): void {
    this.#frame = (this.#frame + 1) % frames.length;
    const room = (this.#sink.columns ?? 80) - 3;
    this.#sink.write(`${eraseLine}${this.#paint("cyan", frames[this.#frame] as string)} ${cut(this.#text, room)}`);
  }
}
