import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { version } from "./node-fixture.ts";
import { startNode } from "./start.ts";

test.each(["grpcPort", "httpPort", "peerPort"] as const)(
  "a node whose %s is taken leaves nothing in its folder, so that it may still join a cluster",
  async (port) => {
    using held = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    const dataDir = mkdtempSync(join(tmpdir(), "hop-ports-"));
    const before = readdirSync(dataDir);
    const free = { dataDir, version, grpcPort: 0, httpPort: 0, peerPort: 0 };
    await expect(startNode({ ...free, [port]: held.port })).rejects.toThrow(`127.0.0.1:${held.port}`);
    const left = readdirSync(dataDir).filter((name) => name !== "LOCK");
    expect(left).toEqual(before);
    const joining = await startNode({ ...free, seeds: [`127.0.0.1:${held.port}`] });
    expect([joining.isMember, joining.clusterId]).toEqual([false, ""]);
    await joining.close();
    rmSync(dataDir, { recursive: true });
  },
);
