/** The grammar of `hop schedule`. */
import { type Command, Option } from "commander";
import { overlapPolicies } from "#proto";
import type { GrammarParts } from "../message-commands.ts";

function timeOptions(command: Command): Command {
  return command
    .optionsGroup("Times:")
    .option("--cron <expression...>", 'such as "0 2 * * mon-fri", with seconds "*/10 * * * * *", or @daily; in quotes')
    .option("--zone <name>", "time zone of --cron, such as Europe/Berlin (UTC when unset)")
    .addOption(
      new Option("--skipped <what>", "a local time that clocks leave out fires at the next moment, or not").choices(["next", "skip"]),
    )
    .addOption(
      new Option("--repeated <which>", "a local time that comes twice fires the first time, the last, or both").choices([
        "first",
        "last",
        "both",
      ]),
    )
    .option("--every <duration>", "at an interval, counted from 1970")
    .option("--offset <duration>", "with --every: so much later")
    .option("--at <time...>", "once each, such as 2026-12-24T18:00:00Z")
    .option("--from <time>", "not before")
    .option("--until <time>", "not then or after")
    .option("--jitter <duration>", "each start is put off by up to this");
}

function configOptions(command: Command): Command {
  return timeOptions(
    command
      .option("--input <json>", "input of each run: JSON, @file, or - for standard input")
      .option("--deadline <duration>", "longest time that each run may take")
      .addOption(
        new Option("--overlap <policy>", "what an instant does while a run of the schedule is live (skip when unset)").choices(
          Object.keys(overlapPolicies),
        ),
      )
      .option("--catch-up <duration>", "how late a start may be after an outage (1d when unset); what was due before is missed")
      .option("--note <text>", "for people"),
  );
}

export function scheduleCommands(root: Command, { sub, withOptions, handle }: GrammarParts): void {
  const schedule = sub(root, "schedule", "start runs at times: cron in a time zone, intervals, instants");
  const leaf = (usage: string, description: string) => sub(schedule, usage, description);
  const changes = () => import("../command/schedule.ts");
  const views = () => import("../command/schedule-show.ts");
  handle(
    withOptions(
      configOptions(
        leaf("create <id> <type>", "make a schedule that starts workflow <type>").option("--paused", "it fires when it is resumed"),
      ),
    ),
    async () => (await changes()).scheduleCreate,
  );
  handle(
    withOptions(
      configOptions(leaf("update <id>", "change what is given, and keep the rest").option("--type <name>", "workflow that it starts")),
    ),
    async () => (await changes()).scheduleUpdate,
  );
  handle(
    withOptions(leaf("list", "list schedules, newest first").option("--limit <count>", "at most this many (100 when unset)")),
    async () => (await views()).scheduleList,
  );
  handle(withOptions(leaf("show <id>", "show a schedule and what its last instants came to")), async () => (await views()).scheduleShow);
  const reason = "why, for its history";
  handle(
    withOptions(leaf("pause <id>", "no instant fires until it is resumed").option("--reason <text>", reason)),
    async () => (await changes()).schedulePause,
  );
  handle(
    withOptions(
      leaf("resume <id>", "go on with the next instant; those that passed are not made up for").option("--reason <text>", reason),
    ),
    async () => (await changes()).scheduleResume,
  );
  handle(
    withOptions(leaf("trigger <id>", "start a run now, paused or not").option("--reason <text>", reason)),
    async () => (await changes()).scheduleTrigger,
  );
  handle(
    withOptions(
      leaf("backfill <id>", "start runs for instants that have passed, one after the other")
        .requiredOption("--from <time>", "first instant, such as 2026-02-03T04:05:06Z, or how long ago, such as 2d")
        .requiredOption("--to <time>", "not that instant or later")
        .option("--at-once", "all at once"),
    ),
    async () => (await changes()).scheduleBackfill,
  );
  handle(
    withOptions(leaf("delete <id>", "end a schedule; its runs go on").option("--reason <text>", reason)),
    async () => (await changes()).scheduleDelete,
  );
  handle(
    withOptions(
      timeOptions(
        leaf("preview [id]", "print when times fire, and which are affected by a change of clocks; needs a server for <id> only")
          .option("--count <count>", "how many (10 when unset)")
          .option("--after <time>", "from then on (now when unset)"),
      ),
    ),
    async () => (await views()).schedulePreview,
  );
}
