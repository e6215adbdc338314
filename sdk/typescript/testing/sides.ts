/** What the two halves of a test environment say to each other: Core to its worker, and back. */
import type { SessionId, TaskEffect, Token } from "#core/base";
import type { Input } from "#core/shard";
import type { Hello } from "#proto";

export type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

export interface Activation {
  readonly handle: number;
  readonly activation: number;
  readonly events: readonly Uint8Array[];
  readonly fromStart: boolean;
  readonly run?: string;
  readonly bundle?: Uint8Array;
  readonly type?: string;
  readonly readOnly?: boolean;
}

export interface AskedQuery {
  readonly query: number;
  readonly handle: number;
  readonly name: string;
  readonly input: { readonly data: Uint8Array } | undefined;
}

export interface WorkerSide {
  /** Workflow code has said all that it has to say, and was heard. */
  readonly isSilent: boolean;
  hello(): Hello;
  activate(activation: Activation): void;
  query(query: AskedQuery): void;
  drop(handle: number): void;
  /** `dueMs`: when it was to begin. */
  task(task: TaskEffect, dueMs: number): void;
  cancelTask(token: Token, reason: string): void;
  /** Core ended: runs that it held are nobody's, activities go on. */
  disconnected(): void;
}

export interface CoreSide {
  readonly nowMs: number;
  /** Does all that is to be done now. */
  pump(): void;
  /** An input of the worker, on the stream that it has when all that is due has happened. Undefined: none after all. */
  fromWorker(input: (session: SessionId) => Untimed | undefined): void;
}
