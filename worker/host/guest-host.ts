/**
 * Runs workflow code in a sandbox. One implementation a mode; `guest-host.suite.ts` holds all of
 * them to the same behaviour.
 *
 * A run is a sequence of deliveries. The host hands them to the guest one after another and lets
 * the guest run dry (all its microtasks) after each, so that what the guest does depends on the
 * order of deliveries alone and never on how they were batched.
 */
import type { CommandInit, FailureInit } from "#proto";

/**
 * What a guest can be told. `value` is the payload's bytes (JSON for TypeScript guests). With
 * `replay` it repeats history: the guest's log lines are not written again.
 */
export type Delivery = { readonly nowMs: number; readonly replay?: boolean } & (
  | { readonly kind: "start"; readonly input: Uint8Array }
  | { readonly kind: "resolve"; readonly op: number; readonly value: Uint8Array }
  | { readonly kind: "reject"; readonly op: number; readonly failure: FailureInit; readonly attempts?: number }
  | { readonly kind: "signal"; readonly name: string; readonly value: Uint8Array }
  /** Somebody calls a method; the run answers with a command that names the call's number. */
  | { readonly kind: "call"; readonly call: number; readonly name: string; readonly input: Uint8Array }
  /** Nobody waits for the answer to that call any more. */
  | { readonly kind: "cancel-call"; readonly call: number; readonly reason: string }
  | { readonly kind: "cancel"; readonly reason: string }
);

export interface GuestRun {
  /** Chosen by the caller, unique among the host's open runs. */
  readonly key: number;
  /** `namespace:instance`, as the workflow may read it. */
  readonly run: string;
  readonly generation: number;
  /** Name of the exported workflow. */
  readonly type: string;
  /** Hex SHA-256 of the code, which the host loads through its `BundleSource` when it has to. */
  readonly bundle: string;
  readonly seed: number;
  /** `dense` shares a frozen realm with other runs, `isolate` has one to itself. Left out: the host's choice. */
  readonly lane?: "dense" | "isolate";
}

export type Activation =
  | { readonly kind: "ok"; readonly commands: CommandInit[] }
  /** A processor-time or memory limit was exceeded. The run is gone from the host. */
  | { readonly kind: "limit"; readonly message: string }
  /** The bundle can't be loaded or has no such workflow. The run is gone from the host. */
  | { readonly kind: "broken"; readonly message: string }
  /** The host lost the run through no fault of its own (a neighbour broke the realm, the host process died). */
  | { readonly kind: "lost"; readonly message: string };

export type QueryResult =
  | { readonly kind: "ok"; readonly value: Uint8Array }
  | { readonly kind: "failed"; readonly failure: FailureInit }
  | { readonly kind: "not-found"; readonly declared: string[] }
  | { readonly kind: "lost"; readonly message: string };

export interface GuestHost {
  /** Makes a run known; its code runs at its first delivery. */
  open(run: GuestRun): void;
  has(key: number): boolean;
  activate(key: number, deliveries: readonly Delivery[]): Promise<Activation>;
  /** Reads the run's state. Appends nothing: a query that tries to act fails. */
  query(key: number, name: string, input: Uint8Array): Promise<QueryResult>;
  drop(key: number): void;
  /** Ends the host and its processes. */
  close(): Promise<void>;
}

/** Code of a bundle by its hex SHA-256; rejects when it can't be had now. */
export type BundleSource = (bundle: string) => Promise<Uint8Array>;
