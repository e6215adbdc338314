/**
 * Object storage as a node was told of it: looked at when the node starts, and waited for where it
 * can't be reached. Nothing is sealed before it has proven that it keeps its conditions.
 */
import { errorText, HopError } from "#core/base";
import { type BackedObjectStore, checkObjectStore, openObjectStore } from "#store";
import type { CompleteConfig } from "../config.ts";
import { hasher } from "../hasher.ts";
import type { Note } from "../shard/shard-host.ts";
import { type ColdStore, openColdStore } from "./sealing.ts";

/** A start does not wait longer for an answer. */
const startMsMax = 5000;
const againMs = 10_000;

export class ObjectStorage {
  readonly objects: BackedObjectStore;
  private readonly note: Note;
  /** It may be sealed to. */
  isProven = false;
  private stopTimer = () => {};

  /** Throws BAD_REQUEST for a URL that can't be used. */
  constructor(url: string, note: Note) {
    this.objects = openObjectStore(url);
    this.note = note;
  }

  /**
   * Resolves when it has been proven, or could not be reached for a while. Rejects where it says no:
   * wrong credentials, no such bucket, conditions that it ignores.
   */
  async open(): Promise<void> {
    const proven = this.prove();
    const waited = new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, startMsMax);
      this.stopTimer = () => clearTimeout(timer);
    });
    await Promise.race([proven, waited]);
    this.stopTimer();
    // What it says later is told by those who wait for it.
    proven.catch(() => {});
  }

  /** Tries until it has been proven. */
  async keepProving(isOver: () => boolean): Promise<void> {
    while (!this.isProven && !isOver()) {
      try {
        await this.prove();
      } catch (error) {
        const reason = errorText(error);
        this.note("warn", "object storage can't be used, and is tried again", { reason });
      }
      if (!this.isProven) await new Promise((resolve) => setTimeout(resolve, againMs));
    }
  }

  close(): Promise<void> {
    return this.objects.close();
  }

  private async prove(): Promise<void> {
    if (this.isProven) return;
    try {
      await checkObjectStore(this.objects);
      this.isProven = true;
    } catch (error) {
      if (!(error instanceof HopError) || error.reason !== "STORE_UNAVAILABLE") throw error;
      this.note("warn", "object storage is not reached yet", { reason: error.message });
    }
  }
}

/** The one that the node was told of. Throws BAD_REQUEST for a URL that can't be used. */
export function objectStorageOf({ objectStore, logger }: CompleteConfig): ObjectStorage | undefined {
  return objectStore === undefined ? undefined : new ObjectStorage(objectStore, (level, what, fields) => logger[level](what, fields));
}

/** Object storage with the objects of one cluster in it. */
export interface NodeColdStore extends ColdStore {
  readonly storage: ObjectStorage;
}

/** `cluster` begins the keys of its objects. */
export const coldStoreIn = (storage: ObjectStorage, cluster: string): NodeColdStore => ({
  storage,
  ...openColdStore(storage.objects, cluster, hasher),
});
