/** Commands of the dead-letter queue. */
import type { Command } from "commander";
import type { GrammarParts } from "./message-commands.ts";

export function dlqCommands(root: Command, { sub, withOptions, handle }: GrammarParts): void {
  const dlq = sub(root, "dlq", "see to compensations that failed for good: the dead-letter queue");
  const leaf = (usage: string, description: string) => sub(dlq, usage, description);
  const load = () => import("./command/dlq.ts");
  const ids = "(- reads ids from standard input)";
  handle(
    withOptions(
      leaf("list", "list dead letters, those of the newest runs first").option("--limit <count>", "at most this many (100 when unset)"),
    ),
    async () => (await load()).dlqList,
  );
  handle(withOptions(leaf("show <letter>", "show a dead letter: what it is to do, and why it failed")), async () => (await load()).dlqShow);
  handle(
    withOptions(leaf("replay <letter...>", `have dead letters executed again, with the same idempotency keys ${ids}`)),
    async () => (await load()).dlqReplay,
  );
  handle(
    withOptions(
      leaf("drop <letter...>", `give dead letters up ${ids}`).requiredOption(
        "--reason <text>",
        "why they are not needed, for the run's history",
      ),
    ),
    async () => (await load()).dlqDrop,
  );
}
