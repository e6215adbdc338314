/** Progress of the orders: a bar on a terminal, a line for each tenth elsewhere. */
const width = 40;

export class Progress {
  private readonly total: number;
  private readonly isTerminal = process.stdout.isTTY === true;
  private shown = 0;

  constructor(total: number) {
    this.total = total;
  }

  show(count: number): void {
    if (this.isTerminal) {
      const filled = Math.round((count / this.total) * width);
      process.stdout.write(`\r  ${"█".repeat(filled)}${"░".repeat(width - filled)} ${count}/${this.total} orders`);
      return;
    }
    const tenth = Math.floor((count / this.total) * 10);
    if (tenth === this.shown) return;
    this.shown = tenth;
    process.stdout.write(`  ${count}/${this.total} orders have ended\n`);
  }

  note(text: string): void {
    process.stdout.write(`${this.isTerminal ? "\n" : ""}  ${text}\n`);
  }

  done(): void {
    if (this.isTerminal) process.stdout.write("\n");
  }
}
