/** Runs the public scenarios of quorums. */
import { asNodeId, type NodeId } from "#core/base";
import { jointIndex, jointVote, majorityIndex, majorityVote } from "../../core/raft/quorum.ts";
import type { Directive } from "../datadriven.ts";

const values = (text: string | undefined) =>
  text === undefined
    ? []
    : text
        .replace(/[()]/g, "")
        .split(",")
        .filter((each) => each !== "");

const number = (index: number) => (index === Number.POSITIVE_INFINITY ? "∞" : String(index));

/** How far each voter is, as bars. */
function bars(ids: readonly NodeId[], reached: ReadonlyMap<NodeId, number>): string {
  if (ids.length === 0) return "<empty majority quorum>";
  const count = ids.length;
  const order = ids.map((id) => ({ id, index: reached.get(id) ?? 0, isKnown: reached.has(id), bar: 0 }));
  order.sort((a, b) => a.index - b.index || a.id - b.id);
  for (let i = 1; i < count; i++) {
    const [before, own] = [order[i - 1], order[i]] as [(typeof order)[0], (typeof order)[0]];
    own.bar = before.index < own.index ? i : before.bar;
  }
  order.sort((a, b) => a.id - b.id);
  const lines = order.map(({ id, index, isKnown, bar }) => {
    const head = isKnown ? `${"x".repeat(bar)}>${" ".repeat(count - bar)}` : `?${" ".repeat(count)}`;
    return `${head} ${String(index).padStart(5)}    (id=${id.toString(16)})\n`;
  });
  return `${" ".repeat(count)}    idx\n${lines.join("")}`;
}

function valuesByVoter<T>(ids: readonly NodeId[], given: readonly T[]): Map<NodeId, T> {
  return new Map(ids.slice(0, given.length).map((id, at) => [id, given[at] as T]));
}

/** One directive: `committed` or `vote`. */
export function runQuorum({ cmd, args }: Directive): string {
  const incoming = values(args.get("cfg")).map((id) => asNodeId(Number(id)));
  const isJoint = args.has("cfgj");
  const outgoing = isJoint && args.get("cfgj") !== "zero" ? values(args.get("cfgj")).map((id) => asNodeId(Number(id))) : [];
  const ids = [...new Set([...incoming, ...outgoing])];
  const given = values(args.get(cmd === "vote" ? "votes" : "idx"));
  if (given.length !== ids.length) return `error: mismatched input (explicit or _) for voters map[${ids.join(" ")}]: [${given.join(" ")}]`;
  const known = [...valuesByVoter(ids, given)].filter(([, value]) => value !== "_");
  if (cmd === "vote") {
    const votes = new Map(known.map(([id, value]) => [id, value === "y"]));
    const vote = (id: NodeId) => votes.get(id);
    const result = jointVote(incoming, outgoing, vote);
    if (jointVote(outgoing, incoming, vote) !== result) return "not symmetric";
    if (!isJoint && majorityVote(incoming, vote) !== result) return "not the same as without a joint quorum";
    return `Vote${result.slice(0, 1).toUpperCase()}${result.slice(1)}`;
  }
  const reached = new Map(known.map(([id, value]) => [id, Number(value)]));
  const index = (id: NodeId) => reached.get(id) ?? 0;
  const result = jointIndex(incoming, outgoing, index);
  if (jointIndex(outgoing, incoming, index) !== result) return "not symmetric";
  if (!isJoint && (majorityIndex(incoming, index) !== result || jointIndex(incoming, incoming, index) !== result))
    return "not the same as a joint quorum with itself";
  return `${bars(ids, reached)}${number(result)}`;
}
