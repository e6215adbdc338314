/** A delivery as the guest kernel's `deliver` takes it: `text` is the head and then the payload. */
import type { FailureInit } from "#proto";
import type { Delivery, GuestRun } from "../guest-host.ts";
import type { WireFailure } from "./protocol.ts";
import { deliveryKind } from "./protocol.ts";

export interface KernelCall {
  readonly kind: number;
  /** The operation, or the length of `head`. */
  readonly op: number;
  readonly head: string;
  readonly payload: Uint8Array;
}

const noBytes = new Uint8Array(0);
const decoder = new TextDecoder();

export function callOf(run: GuestRun, delivery: Delivery): KernelCall {
  switch (delivery.kind) {
    case "start": {
      const head = JSON.stringify([run.run, run.generation, run.type, run.bundle, run.seed]);
      return { kind: deliveryKind.start, op: head.length, head, payload: delivery.input };
    }
    case "resolve":
      return { kind: deliveryKind.resolve, op: delivery.op, head: "", payload: delivery.value };
    case "reject": {
      const head = JSON.stringify(wireFailure(delivery.failure, delivery.attempts));
      return { kind: deliveryKind.reject, op: delivery.op, head, payload: noBytes };
    }
    case "signal":
      return { kind: deliveryKind.signal, op: delivery.name.length, head: delivery.name, payload: delivery.value };
    case "call": {
      const head = JSON.stringify([delivery.call, delivery.name]);
      return { kind: deliveryKind.call, op: head.length, head, payload: delivery.input };
    }
    case "cancel-call":
      return { kind: deliveryKind.cancelCall, op: delivery.call, head: delivery.reason, payload: noBytes };
    case "cancel":
      return { kind: deliveryKind.cancel, op: 0, head: delivery.reason, payload: noBytes };
  }
}

function wireFailure(failure: FailureInit, attempts?: number): WireFailure {
  const wire: WireFailure = { type: failure.type || "Error", message: failure.message ?? "" };
  if (failure.stack) wire.stack = failure.stack;
  if (failure.details?.data !== undefined) wire.details = decoder.decode(failure.details.data);
  if (failure.nonRetryable === true) wire.nonRetryable = true;
  if (failure.cause !== undefined) wire.cause = wireFailure(failure.cause);
  if (attempts !== undefined) wire.attempts = attempts;
  return wire;
}
