/** One run: its state, the events it is made of, and the rules for each. */
export { type Claim, claimed, decideCompleted, decideFailed, decideSchedule, type Timeout, timeoutFailure } from "./activity.ts";
export { applyEvent } from "./apply.ts";
export { type BlobRef, blobsOf } from "./blob-refs.ts";
export { applyReaderFact, isChannelOpen, isSameSending } from "./channel.ts";
export {
  availableTo,
  blankConfig,
  type Channel,
  deliveryDueMs,
  expiryMs,
  inFlightFrom,
  type Reader,
  readerKey,
  saveChannel,
  weightOf,
} from "./channel-state.ts";
export { channelOf, decideRead, decideReadCancelled, decideSendChannel, isChannelUse, readRefused } from "./channel-use.ts";
export { loadRun, saveRun, stateFormat } from "./checkpoint.ts";
export { decideSendCancel, decideSpawn, knowsStart, type SpawnRequest } from "./child.ts";
export { decideCancel, decideResume, decideTerminate, isTerminal, noAsker, outcomeOf, refuseUnlessLive } from "./close.ts";
export {
  decideCompensationStarted,
  decideRegister,
  decideTerminal,
  decideUnwind,
  decideUnwindEnded,
  nextOfUnwind,
  owedAt,
} from "./compensation.ts";
export { compensationCount, decideDropLetter, decideReplayLetter } from "./dead-letter.ts";
export { acquaintances, type Difference, differenceOf, hasAcquaintances, type Side } from "./difference.ts";
export { decodeBody, encodeBody, isForGuest, type RunEvent } from "./event.ts";
export { decideExpiry, type Expiry, expiredText } from "./expiry.ts";
export { failureOf } from "./failure.ts";
export {
  claimAgain,
  claimRefused,
  decideClaim,
  decideForgotten,
  decideStrayReleased,
  decideTakeOfKey,
  strayClaims,
  unheardClaims,
} from "./idempotency.ts";
export { applyForgotten, applyTaken, decideTake, refuseWait, type Taken } from "./inbox.ts";
export { instancePrefix } from "./instance.ts";
export { type CallRequest, callText, decideAnswer, decideCall } from "./method.ts";
export { decideEnd, isOrder, lacksBundle, startOf, withBundle, withBundles } from "./order.ts";
export { applySettled, blankMessage, nextNumber, outgoing, type Pair, settledThrough } from "./outbox.ts";
export { decidePause, decideUnpause, isPaused } from "./pause.ts";
export {
  decideExpired,
  decideHeldSignal,
  decideStartCancelled,
  findStart,
  isOverdue,
  refuseUnknown,
  startText,
  type Target,
} from "./queue.ts";
export { decideAwaitResult, decideSendSignal, decideSettled, decideWaitCancelled, decideWaitRefused } from "./remote.ts";
export { decideAnswerLost, decideCallWithdrawn, decideMethodCall, type MethodCallRequest } from "./remote-call.ts";
export { isSearchableFull, searchableJson, searchableProblem } from "./searchable.ts";
export type { Sender } from "./sender.ts";
export { decideSignal, type SignalRequest } from "./signal.ts";
export { type Contention, contentions, decideNext, decideStart, type StartRequest } from "./start.ts";
export {
  attentionMs,
  dueMs,
  emptyRun,
  generationOf,
  hasGuest,
  isClosed,
  isLive,
  isOpen,
  isReplayOp,
  isSettled,
  isUngranted,
  kept,
  keyDueMs,
  mayBeOffered,
  mayStartNext,
  type Operation,
  type Run,
  scheduleDueMs,
} from "./state.ts";
export { decideChunk, isConnected } from "./stream.ts";
export { isFull, toReduced, valueProblem } from "./tally.ts";
export { decideTimer } from "./timer.ts";
