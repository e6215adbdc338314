/**
 * Whether a node that owes an answer is still there.
 *
 * A machine that stops without a word leaves its connections open. While a call is under way and
 * nothing comes, its node is asked for something small, and left when it stays silent, where
 * there is another one to go to. A client that waits for nothing asks nothing.
 */
import type { Endpoint, Endpoints } from "./endpoints.ts";

const beatMs = 250;
/** Silence is counted in beats of this process, so that a pause of its own is not taken for the node's. */
const beatsUntilAsked = 3;
/** A node that is busy for a second after it was asked has half a second to spare. */
const beatsUntilGone = 9;

/** Asks the node for something small; `heard` is called whatever it answers, and never where nothing came. */
export type Ask = (endpoint: Endpoint, heard: () => void) => void;

/** A call under way, as the pulse knows it. */
export interface Watched {
  /** Something came from the node. */
  heard(): void;
  /** The call has ended. */
  done(): void;
}

interface Watch {
  readonly endpoint: Endpoint;
  readonly calls: Set<(problem: string) => void>;
  beat: ReturnType<typeof setInterval>;
  silentBeats: number;
}

export class Pulse {
  private readonly endpoints: Endpoints;
  private readonly ask: Ask;
  private readonly watches = new Map<string, Watch>();

  constructor(endpoints: Endpoints, ask: Ask) {
    this.endpoints = endpoints;
    this.ask = ask;
  }

  /** Watches the node while a call to it is under way. `gone` ends the call: no other answer is to be expected. */
  watch(endpoint: Endpoint, gone: (problem: string) => void): Watched {
    const watch = this.watches.get(endpoint.address) ?? this.begin(endpoint);
    watch.calls.add(gone);
    return {
      heard: () => {
        watch.silentBeats = 0;
      },
      done: () => {
        if (watch.calls.delete(gone) && watch.calls.size === 0) this.end(watch);
      },
    };
  }

  private begin(endpoint: Endpoint): Watch {
    const beat = setInterval(() => this.count(watch), beatMs);
    beat.unref();
    const watch: Watch = { endpoint, calls: new Set(), beat, silentBeats: 0 };
    this.watches.set(endpoint.address, watch);
    return watch;
  }

  private end(watch: Watch): void {
    clearInterval(watch.beat);
    if (this.watches.get(watch.endpoint.address) === watch) this.watches.delete(watch.endpoint.address);
  }

  private count(watch: Watch): void {
    const { endpoint } = watch;
    const heard = () => {
      watch.silentBeats = 0;
    };
    // Alone it is waited for: there is nowhere to go, and its connection is watched as well.
    if (this.endpoints.count < 2) return heard();
    watch.silentBeats++;
    if (watch.silentBeats === beatsUntilAsked) this.ask(endpoint, heard);
    if (watch.silentBeats < beatsUntilGone) return;
    const problem = `it has been silent for ${beatMs * beatsUntilGone} ms`;
    const calls = [...watch.calls];
    watch.calls.clear();
    this.end(watch);
    this.endpoints.failed(endpoint.address, problem);
    for (const gone of calls) gone(problem);
    this.endpoints.drop(endpoint);
  }
}
