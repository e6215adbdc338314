/** Events of idempotency keys of activities for the eye. */
import {
  decodeActivityGranted,
  decodeKeyClaimed,
  decodeKeyForgotten,
  decodeKeyReleased,
  decodeKeySettled,
  EventKind,
  type KeyClaimant,
  KeyOutcome,
} from "#proto";
import { formatDuration } from "./duration.ts";
import { type Kind, kind, words } from "./event-kind.ts";
import { payloadText, runText } from "./event-text.ts";

/** `default:o-1#2, operation 3`. */
export const claimantText = ({ partition, generation, op }: KeyClaimant): string => `${runText(partition)}#${generation}, operation ${op}`;

interface Claiming {
  readonly from: string;
  readonly generation: number;
  readonly op: number;
}

const byText = ({ from: partition, generation, op }: Claiming) => `by ${claimantText({ partition, generation, op })}`;

const outcomes: Readonly<Record<number, string>> = {
  [KeyOutcome.granted]: "granted",
  [KeyOutcome.waits]: "waits for its holder",
  [KeyOutcome.settled]: "told the result",
};

export const keyKinds: Record<number, Kind> = {
  [EventKind.activityGranted]: kind("ActivityGranted", decodeActivityGranted, (m) => `#${m.op} by ${m.from}`),
  [EventKind.keyClaimed]: kind("KeyClaimed", decodeKeyClaimed, (m) =>
    words(`${m.activity} ${JSON.stringify(m.key)}`, byText(m), outcomes[m.outcome] ?? `outcome ${m.outcome}`),
  ),
  [EventKind.keySettled]: kind("KeySettled", decodeKeySettled, (m) =>
    words(payloadText(m.result), byText(m), `kept for ${formatDuration(m.keepMs)}`),
  ),
  [EventKind.keyReleased]: kind("KeyReleased", decodeKeyReleased, (m) => words(byText(m), m.reason)),
  [EventKind.keyForgotten]: kind("KeyForgotten", decodeKeyForgotten, () => ""),
};
