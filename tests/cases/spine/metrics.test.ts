/** restate#5034: a metric's name made strict scrapers refuse the whole page. */
import { expect, test } from "bun:test";
import { parseExposition } from "../../../node/observe/exposition-fixture.ts";
import { CaseServer } from "./case-fixture.ts";

test("the page of a server that did all kinds of work satisfies a strict reader, before and after a crash", async () => {
  await using at = await CaseServer.up();
  const page = async () => {
    const response = await fetch(`http://${at.server.http}/metrics`);
    expect([response.status, response.headers.get("content-type")]).toEqual([200, expect.stringContaining("text/plain")]);
    return parseExposition(await response.text());
  };
  expect((await page()).size).toBeGreaterThan(3);
  await at.client.execute("nap", 1);
  const odd = await at.client.start("collect", undefined, { instance: `quotes "and" \\ lines` });
  await odd.cancel();
  await at.client.start('no "such" type\n').catch(() => {});
  await at.client
    .handle("default:nobody")
    .signal("x")
    .catch(() => {});
  const before = await page();
  await at.server.kill();
  await at.again();
  const after = await page();
  expect([...before.keys()].filter((name) => !after.has(name))).toEqual([]);
}, 30_000);
