/** Sends runs to workers from the start of their history: reads from the log, a few at a time. */
import { limits, type ReplayEffect, runOf, type SessionId } from "#core/base";
import type { SegmentStore } from "#store";
import type { WorkerLink } from "./shard-port.ts";

export interface ReplayerParts {
  readonly segments: SegmentStore;
  readonly links: ReadonlyMap<SessionId, WorkerLink>;
  /** Resolves when the history can be read here: what is committed may be durable on other nodes first. */
  readable(effect: ReplayEffect): Promise<void>;
  /** The history could not be read now. */
  onFailed(effect: ReplayEffect, cause: unknown): void;
}

/** Histories read at one time: enough to keep the disk busy, little enough to keep memory small. */
const activeMax = 32;

export class Replayer {
  private readonly parts: ReplayerParts;
  private readonly queue: ReplayEffect[] = [];
  private readonly wanted = new Map<string, ReplayEffect>();
  private active = 0;

  constructor(parts: ReplayerParts) {
    this.parts = parts;
  }

  add(effect: ReplayEffect): void {
    this.wanted.set(keyOf(effect.session, effect.handle), effect);
    this.queue.push(effect);
    this.pump();
  }

  /** The run was taken from the session: what is not sent yet is not sent at all. */
  forget(session: SessionId, handle: number): void {
    this.wanted.delete(keyOf(session, handle));
  }

  private pump(): void {
    while (this.active < activeMax) {
      const effect = this.queue.shift();
      if (effect === undefined) return;
      if (!this.isWanted(effect)) continue;
      this.active++;
      void this.send(effect)
        .catch((cause: unknown) => {
          if (this.isWanted(effect)) this.parts.onFailed(effect, cause);
        })
        .finally(() => {
          this.active--;
          if (this.isWanted(effect)) this.forget(effect.session, effect.handle);
          this.pump();
        });
    }
  }

  private isWanted(effect: ReplayEffect): boolean {
    return this.wanted.get(keyOf(effect.session, effect.handle)) === effect && this.parts.links.has(effect.session);
  }

  private async send(effect: ReplayEffect): Promise<void> {
    const { partition, firstSeq, endSeq, lastIndex } = effect;
    await this.parts.readable(effect);
    let batch: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of this.parts.segments.history({ shard: effect.lastShard, partition, firstSeq, endSeq, lastIndex })) {
      for (const event of chunk) {
        if (bytes > 0 && bytes + event.length > limits.frameBytesSoft) {
          this.put(effect, batch, true);
          batch = [];
          bytes = 0;
        }
        batch.push(event);
        bytes += event.length;
      }
    }
    this.put(effect, batch, false);
  }

  private put(effect: ReplayEffect, events: Uint8Array[], more: boolean): void {
    if (!this.isWanted(effect)) return;
    const { handle, activation, bundle, type, readOnly, partition } = effect;
    this.parts.links.get(effect.session)?.send({
      kind: "activate",
      value: { handle, activation, fromStart: true, more, run: runOf(partition), bundle, type, events, readOnly },
    });
  }
}

const keyOf = (session: SessionId, handle: number) => `${session}.${handle}`;
