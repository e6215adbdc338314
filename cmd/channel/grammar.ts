/** The grammar of `hop channel`. */
import { type Command, Option } from "commander";
import { reducers } from "#proto";
import type { GrammarParts } from "../message-commands.ts";

function configOptions(command: Command): Command {
  return command
    .option("--expire <duration>", "drop a message that some reader has not taken after so long (0s and unset: none is dropped)")
    .option("--messages <count>", "messages that may wait for readers (65536 when unset); above it senders wait")
    .option("--bytes <size>", "bytes of messages that may wait, such as 16MiB (4MiB when unset)")
    .option("--note <text>", "for people");
}

export function channelCommands(root: Command, { sub, withOptions, handle }: GrammarParts): void {
  const channel = sub(root, "channel", "messages between any senders and any readers, beside the histories of both");
  const leaf = (usage: string, description: string) => sub(channel, usage, description);
  const changes = () => import("../command/channel.ts");
  const views = () => import("../command/channel-show.ts");
  handle(
    withOptions(
      configOptions(leaf("open <name>", "open a channel; whoever first sends to a name, or reads it, opens one too")).addOption(
        new Option("--reducer <what>", "keep what messages come to, in place of the messages (none when unset)").choices(
          Object.keys(reducers),
        ),
      ),
    ),
    async () => (await changes()).channelOpen,
  );
  handle(
    withOptions(configOptions(leaf("change <name>", "change what is given, and keep the rest"))),
    async () => (await changes()).channelChange,
  );
  handle(
    withOptions(
      leaf("send <name>", "send a message; with --lines one for each line of the input")
        .option("--input <json>", "the message: JSON, @file, or - for standard input")
        .option("--lines", "each line of the input is a message")
        .option("--id <id>", "sent again with the same id, it is the same message"),
    ),
    async () => (await changes()).channelSend,
  );
  handle(
    withOptions(
      leaf("read <name>", "print messages, a line each; nothing is taken from the channel's readers")
        .option("--from <offset>", "messages with this offset and later ones (default: all)")
        .option("--follow", "go on with what comes"),
    ),
    async () => (await views()).channelRead,
  );
  handle(
    withOptions(leaf("list", "list open channels, newest first").option("--limit <count>", "at most this many (100 when unset)")),
    async () => (await views()).channelList,
  );
  handle(withOptions(leaf("show <name>", "show a channel, and how far its readers are")), async () => (await views()).channelShow);
  handle(
    withOptions(
      leaf("close <name>", "take no more messages; readers are given what is there").option("--reason <text>", "why, for its history"),
    ),
    async () => (await changes()).channelClose,
  );
}
