/** `EventTarget`, `AbortController` and their kin: signals within a workflow. Source: DOM, sections 2 and 3. */

type Listener = ((event: Event) => void) | { handleEvent(event: Event): void } | null;

export class Event {
  readonly type: string;
  readonly cancelable: boolean;
  target: EventTarget | null = null;
  defaultPrevented = false;

  constructor(type: unknown, options: { cancelable?: boolean } = {}) {
    this.type = String(type);
    this.cancelable = options.cancelable === true;
  }

  preventDefault(): void {
    if (this.cancelable) this.defaultPrevented = true;
  }
}

export class EventTarget {
  readonly #listeners: { type: string; listener: NonNullable<Listener>; once: boolean }[] = [];

  addEventListener(type: string, listener: Listener, options: boolean | { once?: boolean; signal?: AbortSignal } = {}): void {
    const { once = false, signal } = typeof options === "object" ? options : {};
    if (
      listener === null ||
      signal?.aborted === true ||
      this.#listeners.some((known) => known.type === type && known.listener === listener)
    )
      return;
    this.#listeners.push({ type, listener, once });
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener));
  }

  removeEventListener(type: string, listener: Listener): void {
    const at = this.#listeners.findIndex((known) => known.type === type && known.listener === listener);
    if (at >= 0) this.#listeners.splice(at, 1);
  }

  dispatchEvent(event: Event): boolean {
    event.target = this;
    for (const { type, listener, once } of [...this.#listeners]) {
      if (type !== event.type) continue;
      if (once) this.removeEventListener(type, listener);
      if (typeof listener === "function") listener.call(this as never, event);
      else listener.handleEvent(event);
    }
    return !event.defaultPrevented;
  }
}

const reasons = { AbortError: "This operation was aborted", TimeoutError: "The operation was aborted due to timeout" } as const;

function reasonOf(name: keyof typeof reasons): Error {
  const error = new Error(reasons[name]);
  error.name = name;
  return error;
}

/** Aborts a signal. Set by the class, as only it can. */
let raise: (signal: AbortSignal, reason: unknown) => void;

export class AbortSignal extends EventTarget {
  onabort: ((event: Event) => void) | null = null;
  #reason: unknown;
  #aborted = false;

  get aborted(): boolean {
    return this.#aborted;
  }

  get reason(): unknown {
    return this.#reason;
  }

  throwIfAborted(): void {
    if (this.#aborted) throw this.#reason;
  }

  static abort(reason: unknown = reasonOf("AbortError")): AbortSignal {
    const signal = new AbortSignal();
    raise(signal, reason);
    return signal;
  }

  /** Fires by a durable timer. */
  static timeout(ms: number): AbortSignal {
    const signal = new AbortSignal();
    setTimeout(() => raise(signal, reasonOf("TimeoutError")), ms);
    return signal;
  }

  static any(signals: Iterable<AbortSignal>): AbortSignal {
    const any = new AbortSignal();
    for (const signal of signals) {
      if (signal.aborted) raise(any, signal.reason);
      else signal.addEventListener("abort", () => raise(any, signal.reason), { once: true });
    }
    return any;
  }

  static {
    raise = (signal, reason) => {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason;
      const event = new Event("abort");
      signal.onabort?.(event);
      signal.dispatchEvent(event);
    };
  }
}

export class AbortController {
  readonly signal = new AbortSignal();

  abort(reason: unknown = reasonOf("AbortError")): void {
    raise(this.signal, reason);
  }
}
