/** Bugs of channels, and of the runs that read them. */
import { bug, type PlantedBug } from "./planted-bug.ts";

export const channelBugs: readonly PlantedBug[] = [
  bug(
    "sending-taken-twice",
    "A sending that comes again is another one",
    "core/shard/channels.ts",
    'id === "" ? undefined : live.run.channel',
    'id !== "" ? undefined : live.run.channel',
    ["channelMessagesOnce"],
    [29],
  ),
  bug(
    "unused-reduction-lost",
    "What a reader was given and never used is not part of what it is given next",
    "core/run/channel.ts",
    "    reader.since = reader.taken;\n",
    "",
    ["reducedOnce", "channelMessagesOnce"],
  ),
  bug(
    "dropped-under-way",
    "Messages whose time is over are dropped though they are on their way to a reader",
    "core/run/channel-state.ts",
    "from = Math.min(from, offset);",
    "from = Math.max(from, offset);",
    ["channelMessagesOnce"],
  ),
  bug(
    "kept-for-the-fastest",
    "A channel keeps no message that one of its readers has",
    "core/run/channel-state.ts",
    "before = Math.min(before, offset);",
    "before = offset;",
    ["channelMessagesOnce"],
  ),
  bug(
    "checkpoint-without-places",
    "A checkpoint forgets how far a run has read its channels",
    "core/run/checkpoint.ts",
    "reads: [...run.reads].map(",
    "reads: [...new Map<string, number>()].map(",
    ["replicasAreEqual", "channelMessagesOnce"],
  ),
];
