/** Messages as they come off the wire: the codec's own objects, once they are known to make sense, and what they are of. */
import type { RaftMessage } from "#proto";
import { confProblem, noConf } from "./membership.ts";
import { type Message, MessageKind } from "./types.ts";

/** What was decoded, as a message; or what is wrong with it. Nothing is copied. */
export function messageOf(decoded: RaftMessage): Message | { readonly problem: string } {
  const { kind, snapshot } = decoded;
  if (kind < MessageKind.append || kind > MessageKind.timeoutNow) return { problem: `kind ${kind} is not known` };
  if (decoded.from === 0 || decoded.to === 0) return { problem: "it has no sender or no addressee" };
  if (decoded.from === decoded.to) return { problem: `node ${decoded.from} sends it to itself` };
  if (decoded.term === 0) return { problem: "it has no term" };
  // The codec's object is the message; only the brands of its numbers are missing.
  const message = decoded as unknown as Message;
  if (kind !== MessageKind.snapshot) return message;
  if (snapshot === undefined || snapshot.index === 0 || snapshot.term === 0) return { problem: "it brings no snapshot" };
  if (snapshot.conf === undefined) return { problem: "its snapshot has no configuration" };
  const problem = confProblem(message.snapshot?.conf ?? noConf);
  return problem === undefined ? message : { problem: `in its snapshot's configuration ${problem}` };
}

/** Only who leads sends it. */
export const isOfLeader = ({ kind }: Message) =>
  kind === MessageKind.append || kind === MessageKind.heartbeat || kind === MessageKind.snapshot;

export const asksForVote = ({ kind }: Message) => kind === MessageKind.preVote || kind === MessageKind.vote;
