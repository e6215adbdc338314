/** Those who connected to a server and are not admitted yet: how many there may be, and for how long. */

/** Bounds on those who are not admitted yet. */
export interface SocketGate {
  readonly frameBytesMax: number;
  /** From the connection to `admit`; above it the stream is lost. */
  readonly timeoutMs: number;
  /** More are dropped as they come. */
  readonly strangersMax: number;
}

export class Strangers {
  private readonly gate: SocketGate;
  private readonly timers = new Map<object, ReturnType<typeof setTimeout>>();

  constructor(gate: SocketGate) {
    this.gate = gate;
  }

  /** False: there are too many already. `expire` is called where it does not `leave` in time. */
  enter(who: object, expire: (message: string) => void): boolean {
    if (this.timers.size >= this.gate.strangersMax) return false;
    const { timeoutMs } = this.gate;
    this.timers.set(
      who,
      setTimeout(() => expire(`The peer did not say who it is within ${timeoutMs} ms`), timeoutMs),
    );
    return true;
  }

  leave(who: object): void {
    clearTimeout(this.timers.get(who));
    this.timers.delete(who);
  }

  clear(): void {
    for (const timer of this.timers.values()) clearTimeout(timer);
    this.timers.clear();
  }
}
