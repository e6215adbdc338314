/**
 * What host and guest kernel say to each other. Used on both sides, so it imports nothing.
 *
 * To the kernel: one call a delivery, `deliver(kind, key, op, nowMs, flags, text)`. From it: one
 * string of records a delivery, `tag FIELD field FIELD … RECORD`. Names hold no control
 * characters and JSON escapes them, so the two separators need no escaping and payloads travel
 * as they are.
 */
export const fieldEnd = "\x1f";
export const recordEnd = "\x1e";

/** `op` is the operation, or the length in UTF-16 units of the head that precedes the payload in `text`. */
export const deliveryKind = {
  /** Head: JSON `[run, generation, type, bundle, seed]`; then the input. */
  start: 1,
  /** The operation's result. */
  resolve: 2,
  /** JSON `WireFailure`. */
  reject: 3,
  /** Head: the name; then the payload. */
  signal: 4,
  /** The reason. */
  cancel: 5,
  /** Head: the name; then the input. */
  query: 6,
  drop: 7,
  /** Head: JSON `[call, name]`; then the input. */
  call: 8,
  /** `op`: the call's number. The reason. */
  cancelCall: 9,
} as const;

export const deliveryFlag = {
  /** The activation's last delivery: it is answered after this one. */
  last: 1,
  /** The delivery repeats history: log lines are not written again. */
  replay: 2,
  /** No answer. */
  silent: 4,
} as const;

export const record = {
  /** op, name, options (JSON array), input */
  activity: "A",
  /** op, milliseconds */
  timer: "T",
  /** op, name */
  awaitSignal: "S",
  /** op, address, name, payload */
  sendSignal: "G",
  /** op, name, value */
  setSearchable: "H",
  /** op, chunk */
  yieldChunk: "Y",
  /** op, address, message */
  sendChannel: "O",
  /** op, address, most messages (0 = no bound), linger in milliseconds */
  readChannel: "o",
  /** op, address, call that waits */
  awaitResult: "W",
  /** op, address, method, "1" where withdrawing it cancels it there and else "0", call that makes it, input */
  callMethod: "K",
  /** call, result */
  answerCall: "M",
  /** call, JSON `WireFailure`, "1" where the input did not pass and else "0" */
  failCall: "E",
  /** op, address, type, settings (JSON array), input */
  spawn: "P",
  /** op, address, spawning op (0 = none), reason (JSON string) */
  cancelRun: "I",
  /** op, address, spawning op, name, payload */
  signalChild: "J",
  /** op, name, trigger, options (JSON array), input */
  compensate: "U",
  /** op of the registration */
  withdrawCompensation: "V",
  /** op */
  cancelOp: "C",
  /** result */
  complete: "D",
  /** JSON `WireFailure` */
  fail: "F",
  cancelled: "X",
  /** level, JSON string */
  log: "L",
  /** JSON string: the code can't be loaded or lacks the workflow. The run is gone. */
  broken: "B",
  /** Answer to a query: the value. */
  answer: "Q",
  /** Answer to a query: JSON `WireFailure`. */
  answerFailed: "R",
  /** Answer to a query: JSON array of the declared names. */
  answerMissing: "N",
  /** A query made the workflow act: the run's state is no longer what its history says. */
  spoiled: "Z",
} as const;

/** A failure as JSON; `details` is JSON text within it. */
export interface WireFailure {
  type: string;
  message: string;
  stack?: string;
  details?: string;
  nonRetryable?: boolean;
  cause?: WireFailure;
  /** Towards the guest only. */
  attempts?: number;
}

/** Settings of a child, in order; the numbers are those of the proto message. */
export type WireSpawn = [
  contention: string,
  overrideReason: string,
  idempotencyKey: string,
  deadlineMs: number,
  budgetMs: number,
  closePolicy: number,
  ownCode: boolean,
];

/** Fields of an activity's options record, in order; the numbers are those of the proto message. */
export type WireOptions = [
  attemptsMax: number,
  initialMs: number,
  intervalMsMax: number,
  backoffMilli: number,
  jitterMilli: number,
  startToCloseMs: number,
  scheduleToCloseMs: number,
  heartbeatMs: number,
  nonRetryable: readonly string[],
  idempotencyKey: string,
];
