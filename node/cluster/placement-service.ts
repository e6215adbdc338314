/** What other nodes ask of placement where this node leads it: commands, the watch of its view, their reports. */
import { decodeCommand, encodeChanges, encodeReply, encodeView } from "#core/placement";
import { decodePlacementAsk, encodePlacementAnswered, fromBytes, type Identity, toBytes } from "#proto";
import { asHopError } from "../service/status.ts";
import { notLeading, type Placement, placementCalls } from "./placement.ts";

/** Views follow each other this far apart, but for a few: what changes a shard's keys are two or three in a row. */
const viewGapMs = 50;
const viewBurst = 4;
/** A watch that has nothing to say looks this often whether it still may. */
const watchPollMs = 500;

const nobody: Identity = { issuer: "", subject: "", verified: false, causeSeq: 0 };
const noBody = new Uint8Array(0);

export function servePlacement(placement: Placement): void {
  const { net } = placement.parts;
  net.serve(placementCalls.command, (_, body) => command(placement, body));
  net.serve(placementCalls.leader, () => toBytes(encodePlacementAnswered, { leader: placement.leaderHint ?? 0 }));
  net.serve(placementCalls.report, (_, body) => {
    placement.takeReport(body);
    return noBody;
  });
  net.serveStream(placementCalls.watch, (_, __, gone) => watch(placement, gone));
}

async function command(placement: Placement, body: Uint8Array): Promise<Uint8Array> {
  const { identity, command: message } = fromBytes(decodePlacementAsk, body);
  const local = placement.parts.local();
  const elsewhere = () => toBytes(encodePlacementAnswered, { leader: placement.leaderHint ?? 0 });
  if (local === undefined || !local.leads()) return elsewhere();
  const asked = decodeCommand(message);
  try {
    const reply = await local.command(identity ?? nobody, asked);
    return toBytes(encodePlacementAnswered, { answer: encodeReply(reply), leader: placement.parts.self });
  } catch (error) {
    if (asHopError(error).reason === "NOT_LEADER") return elsewhere();
    throw error;
  }
}

/** The whole view first, then what changed, for as long as this node leads placement. */
async function* watch(placement: Placement, gone: AbortSignal): AsyncIterable<Uint8Array> {
  let sent = -1;
  const sentMs: number[] = [];
  while (!gone.aborted) {
    const local = placement.parts.local();
    if (local === undefined || !local.leads()) throw notLeading();
    const view = local.view();
    if (view.version > sent) {
      yield sent < 0 ? encodeView(view) : encodeChanges(view, sent);
      sent = view.version;
      const { timing } = placement.parts;
      sentMs.push(timing.monotonicMs());
      if (sentMs.length === viewBurst) {
        const waitMs = (sentMs.shift() as number) + viewBurst * viewGapMs - timing.monotonicMs();
        if (waitMs > 0) await pause(placement, waitMs);
      }
    } else await change(placement, gone);
  }
}

/** Resolves with the next view, or soon. */
function change(placement: Placement, gone: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      stopTimer();
      stopView();
      gone.removeEventListener("abort", done);
      resolve();
    };
    const stopTimer = placement.parts.timing.after(watchPollMs, done);
    const stopView = placement.onView(done);
    gone.addEventListener("abort", done);
  });
}

function pause(placement: Placement, ms: number): Promise<void> {
  return new Promise((resolve) => void placement.parts.timing.after(ms, resolve));
}
