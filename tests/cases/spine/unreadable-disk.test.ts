/** cadence#8339 on the compiled server: what can't be read now is an error, never "not found" and never a fresh start. */
import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { HopClient, HopError } from "#sdk/client";
import { until } from "#tests/cluster";
import { Strace, whyNoStrace } from "../../chaos/strace.ts";
import { CaseServer } from "./case-fixture.ts";

const reason = whyNoStrace();
const reasonOf = (error: unknown) => (error instanceof HopError ? error.reason : String(error));
const faults = ["error=EIO", "retval=0", "error=EAGAIN"];
const over = { instance: "over", idempotencyKey: "once" };

describe.skipIf(reason !== undefined)("while files can't be read [needs strace]", () => {
  test.each(faults)(
    "%s: start, signal, cancel, result and history say so or succeed, and the generation stays",
    async (fault) => {
      await using at = await CaseServer.up();
      const handle = await at.client.start("collect", undefined, { instance: "known" });
      // So many that what is asked for is on no page of the checkpoint that was read for others.
      await Promise.all(Array.from({ length: 400 }, (_, i) => at.client.start("collect", undefined, { instance: `other-${i}` })));
      // Nothing is due of a run that has ended: it stays out of memory.
      await at.client.start("collect", undefined, over);
      await at.client.terminate("default:over", "done with");
      await handle.signal("item", 1);
      // Out of memory: what comes next has to be read.
      await at.server.stop();
      await at.again();
      // The shard is open, and nothing of the run was read.
      await until(() =>
        at.client.describe("default:nobody").then(
          () => false,
          (error: unknown) => reasonOf(error) === "RUN_NOT_FOUND",
        ),
      );
      const files = ["checkpoint.db", "checkpoint.db-wal", "visibility.db"].map((name) => join(at.server.data, name));
      const log = readdirSync(join(at.server.data, "log")).map((name) => join(at.server.data, "log", name));
      const answers: string[] = [];
      // A database that is too short is a damaged one, and a damaged one ends the server.
      const isShort = fault === "retval=0";
      {
        await using _strace = await Strace.attach(at.server.process.pid, {
          calls: ["pread64", "preadv"],
          paths: isShort ? log : [...files, ...log],
          fault,
          when: "1+",
        });
        const client = HopClient.connect({ address: at.server.grpc, retryMs: 0 });
        const asks: (() => Promise<unknown>)[] = [
          () => client.start("collect", undefined, { instance: "known", idempotencyKey: "other" }),
          () => client.signal("default:known", { name: "item", value: 2, id: "two" }),
          () => client.describe("default:known"),
          () => Array.fromAsync(client.history("default:known")),
          () => client.handle({ instance: "known" }).outcome({ waitMs: 200 }),
          () => client.list({}),
          () => client.start("collect", undefined, over),
          () => client.describe("default:over"),
          () => client.cancel("default:over"),
        ];
        for (const ask of asks) {
          const answer = await ask().then(() => "ok", reasonOf);
          answers.push(answer);
        }
        client.close();
      }
      expect(answers.filter((answer) => answer === "RUN_NOT_FOUND")).toEqual([]);
      // Some page may have come with what was read before.
      for (const [i, known] of ["ok", "ok", "RUN_CLOSED"].entries())
        expect([known, "STORE_UNAVAILABLE"]).toContain(answers.at(i - 3) ?? "nothing");
      // The fault is over: nothing of it is remembered, and the server need not be started again.
      expect(at.server.process.code).toBeUndefined();
      const chunks = await Array.fromAsync(at.client.history("default:known"));
      expect(chunks.flatMap(({ event }) => event).length).toBeGreaterThan(1);
      await at.client.signal("default:known", { name: "item", value: 2, id: "two" });
      expect((await at.client.describe("default:over")).summary?.generation).toBe(1);
      const state = await until(() => at.client.describe("default:known"));
      expect(state.summary?.generation).toBe(1);
      expect(await at.client.handle({ instance: "known" }).query<unknown[]>("seen")).toEqual([1, 2]);
    },
    60_000,
  );
});
