/** The replication factor of a running cluster: set by a command, brought about by the cluster, and known with who set it and why. */
import { expect, test } from "bun:test";
import { until } from "../until.ts";
import { Nodes } from "./nodes.ts";

interface Standing {
  readonly replicationFactor: number;
  readonly replication: {
    readonly wanted: number;
    readonly version: number;
    readonly setBy: string | null;
    readonly reason: string | null;
  };
}

test("set replication shrinks every shard to one replica and grows it again; members tell what their disks hold", async () => {
  await using nodes = new Nodes(3);
  await nodes.form(3);
  const voters = async () => (await nodes.shard(1)).voters.length;
  const status = () => nodes.json<Standing>(["cluster", "status"]);
  expect((await status()).replication).toEqual({ wanted: 3, version: 1, setBy: null, setAt: null, reason: null } as never);

  expect(await nodes.ok(["cluster", "set", "replication", "1", "--reason", "the disks are small"])).toBe("1\n");
  await until(async () => (await voters()) === 1, { what: "one replica" });
  expect(await status()).toMatchObject({
    replicationFactor: 1,
    replication: { wanted: 1, version: 2, setBy: expect.any(String), reason: "the disks are small" },
  });
  await nodes.ok(["cluster", "set", "replication", "3"]);
  await nodes.whole(3);
  expect(await voters()).toBe(3);
  expect(await nodes.ok(["cluster", "status"])).toMatch(/^replicas +3 of each shard wanted \(version 3, set by /m);

  const disks = (await nodes.members()).map(({ diskBytes }) => diskBytes ?? 0);
  // A log's segment is written full before it is used, also where nothing is led.
  expect(disks).toHaveLength(3);
  for (const bytes of disks) expect(bytes).toBeGreaterThan(100_000);
}, 60_000);
