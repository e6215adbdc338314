/**
 * Which of the bytes that wait on a link are Raft messages and which are calls: each kind has a
 * bound of its own, so that one large call does not drop Raft's messages.
 *
 * A link sends in order, so what waits is always the newest of what was added.
 */
type Kind = "raft" | "ask";

interface Run {
  readonly kind: Kind;
  /** Bytes added through its last item. */
  end: number;
}

export class SendLedger {
  private readonly waiting: () => number;
  private readonly runs: Run[] = [];
  private added = 0;

  /** `waiting`: bytes added that have not left yet. */
  constructor(waiting: () => number) {
    this.waiting = waiting;
  }

  add(kind: Kind, bytes: number): void {
    this.added += bytes;
    const last = this.runs.at(-1);
    if (last?.kind === kind) last.end = this.added;
    else this.runs.push({ kind, end: this.added });
  }

  /** Bytes of this kind that have not left yet. */
  bytes(kind: Kind): number {
    let left = Math.max(this.added - this.waiting(), 0);
    let gone = 0;
    while (gone < this.runs.length && (this.runs[gone] as Run).end <= left) gone++;
    this.runs.splice(0, gone);
    let bytes = 0;
    for (const run of this.runs) {
      if (run.kind === kind) bytes += run.end - left;
      left = run.end;
    }
    return bytes;
  }
}
