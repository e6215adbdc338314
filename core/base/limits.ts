/** Every bound in one place. Sizes in bytes, times in milliseconds. */
import { assert } from "./assert.ts";

const KiB = 1024;
const MiB = 1024 * KiB;
const year = 365.25 * 24 * 3600 * 1000;

export const limits = {
  /** A larger payload is a blob: events stay small whatever the data. */
  inlineBytesMax: 64 * KiB,
  /** A larger payload is refused at the call that makes it, without retry. */
  payloadBytesMax: 32 * MiB,
  /** All commands of one activation together. */
  activationBytesMax: 48 * MiB,
  /** One message on a stream. */
  frameBytesMax: 64 * MiB,
  /** Frames are cut near this size, so that one large item does not hold up the rest. */
  frameBytesSoft: 1 * MiB,
  /** Bytes that may wait to be sent on a stream; above it the peer counts as dead. */
  bufferedBytesMax: 256 * MiB,
  /** One log record, with all its events. */
  recordBytesMax: 16 * MiB,
  /** Namespace, instance, type, signal, query and activity names, in UTF-8. */
  nameBytesMax: 255,
  /** Free text by an operator: a reason, a note. */
  textBytesMax: 4 * KiB,
  /** A failure's message and its stack, each. */
  failureBytesMax: 16 * KiB,
  failureDepthMax: 8,
  /** Longest timer. */
  timerMsMax: Math.ceil(100 * year),
  /** Operations open at one time in one run. */
  pendingOpsMax: 10_000,
  /** Compensations of a run's name that are owed, and dead letters of them. */
  compensationsMax: 1000,
  /** How long compensations wait for what they undo to stop, from the run's decided end on. */
  stopWaitMsMax: 30_000,
  /** Signal ids kept to recognise a resent one. */
  signalIdsKept: 64,
  /** Calls of a run's methods that have no answer yet. */
  openCallsMax: 1000,
  /** Runs that may wait for one call, each for the next one. */
  callDepthMax: 64,
  /** Answered calls that are recognised when they are sent again, and bytes of the answers kept for that. */
  answeredCallsKept: 256,
  answeredBytesKept: 1 * MiB,
  /** Idempotency keys of starts that a run's name remembers: those of its last generations. */
  usedKeysKept: 64,
  /** How long the result of an activity with an idempotency key is kept, from its success on; operations that wait for one key. */
  keyRetentionMs: 7 * 24 * 3600 * 1000,
  keyWaitersMax: 1000,
  /** An activity's idempotency key, in UTF-8: 255 characters. */
  activityKeyBytesMax: 1020,
  /** Before what could not be read is asked for again, in milliseconds. */
  rereadMs: 1000,
  /** Starts that wait for one name, and bytes of their inputs and signals. */
  queuedStartsMax: 1000,
  queuedBytesMax: 4 * MiB,
  /** Signals that wait with one start in a queue. */
  heldSignalsMax: 256,
  /** Earlier starts of a name with a queue whose ends it remembers, and bytes of their results. */
  endingsKept: 64,
  endingBytesKept: 1 * MiB,
  /** Names that one run makes searchable, and characters of one value as JSON. */
  searchableMax: 64,
  searchableCharsMax: 2 * KiB,
  /** Consumers of one run's stream at a time. */
  consumersMax: 1000,
  /** After so long without a consumer a stream that had one is disconnected. */
  streamGraceMs: 10_000,
  /** Messages, and bytes of them, that wait in a channel for its readers: where it does not say, and the most that it may say. */
  channelMessages: 65_536,
  channelBytes: 4 * MiB,
  channelMessagesMax: 1_000_000,
  channelBytesMax: 64 * MiB,
  /** Messages, and bytes of them, of one sending; of one batch that a reader is given. */
  sendingMessagesMax: 10_000,
  sendingBytesMax: 4 * MiB,
  batchMessagesMax: 10_000,
  batchBytesMax: 1 * MiB,
  /** A larger batch is a blob: a flood leaves little in the histories of those who read it. */
  batchInlineBytesMax: 4 * KiB,
  /** Sendings that a channel recognises when they come again. */
  sendingsKept: 256,
  channelReadersMax: 1000,
  /** Different values in a channel's union. */
  unionMembersMax: 10_000,
  unionBytesMax: 1 * MiB,
  /** Channels that one run reads. */
  channelsReadMax: 100,
  /** How long the first message of a batch waits for others where a read says nothing; only behind batches of so many. */
  channelLingerMs: 500,
  lingerFromCount: 16,
  channelLingerMsMax: 60_000,
  /** Before a sender to a full channel tries again. */
  channelFullRetryMs: 200,
  /** Offers of one attempt that may be lost with their workers; then the attempt counts as failed. */
  deliveriesMax: 3,
  /** Tasks that wait for a worker, over the whole shard, before starts are refused. */
  readyTasksMax: 200_000,
  /** Events received by a run but not yet taken by its worker, before signals are refused. */
  undeliveredMax: 100_000,
  /** Operations of other runs that wait for one run's result. */
  awaitersMax: 10_000,
  /** Messages of one run that their receivers have not confirmed. */
  unsettledMessagesMax: 10_000,
  /** Messages and, near enough, bytes of one envelope; the first message is in it whatever its size. */
  envelopeMessagesMax: 256,
  envelopeBytesMax: 1 * MiB,
  /** Wait before an envelope without answer is sent again: doubled each time. */
  resendMsMin: 200,
  resendMsMax: 10_000,
  /** Receivers to which everything was settled, whose numbering a sender still goes on with. */
  settledReceiversKept: 256,
  /** Senders that a receiver remembers without thinking of forgetting any. */
  sendersKept: 64,
  /** Senders that one partition remembers, before messages of new ones are refused. */
  sendersMax: 100_000,
  /** How long a receiver goes on remembering a sender that has settled everything with it. */
  dedupRetentionMs: 3600 * 1000,
  /** Clocks of two nodes of a cluster are at most so far apart. */
  clockSkewMsMax: 600_000,
  /** Of a run's note, where one line of it is shown. */
  noteCharsMax: 300,
  /** Runs that one event of expiry names, and histories that expire with one record. */
  expiredRunsMax: 256,
  /** Cron expressions, and single instants, of one schedule. */
  scheduleTimesMax: 100,
  scheduleIntervalMsMin: 1000,
  /** Instants of one schedule that wait for its live run's end, and missed ones that one record tells of. */
  scheduleWaitingMax: 1000,
  scheduleMissedMax: 1000,
  /** Instants that a schedule remembers, for people; runs of one schedule that are live at a time. */
  scheduleFiresKept: 20,
  scheduleLiveMax: 1000,
  /** Before a schedule is looked at again whose zone this machine does not know. */
  scheduleRetryMs: 60_000,
  /** The catch-up window where none is said, and the longest. */
  scheduleCatchUpMs: 24 * 3600 * 1000,
  scheduleCatchUpMsMax: Math.ceil(year),
  scheduleJitterMsMax: 24 * 3600 * 1000,
  retryIntervalMsMax: 24 * 3600 * 1000,
  /** Sleeping longer than this is kept in the checkpoint store, not in memory. */
  timerHorizonMs: 60_000,
  /** Forward jump of the wall clock that is followed at once; above it time is slewed. */
  clockJumpMsMax: 500,
} as const;

assert(limits.inlineBytesMax < limits.recordBytesMax, "an inline payload fits a record");
assert(limits.payloadBytesMax < limits.activationBytesMax, "a payload fits an activation");
assert(limits.activationBytesMax < limits.frameBytesMax, "an activation fits a frame");
assert(limits.frameBytesMax < limits.bufferedBytesMax, "a frame fits what may wait on a stream");
assert(limits.envelopeBytesMax < limits.recordBytesMax / 2, "the messages of an envelope fit a record");
assert(limits.sendingBytesMax < limits.recordBytesMax / 2, "a sending fits a record");
assert(limits.clockSkewMsMax * 2 < limits.dedupRetentionMs, "a fresh offer never looks older than the retention");
