/** A user's project with workflows and the kit as `hop testkit` puts it there, for tests that run test runners in it. */
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../sources.ts";

const workflows = `
import { activities, durable, shield, signal, sleep } from "@hopskip/runtime";
const { send, release } = activities<{ send(to: string): Promise<string>; release(): Promise<void> }>();

export const reminder = durable(async (to: string) => {
  await sleep(14 * 24 * 60 * 60 * 1000);
  return send(to);
});

export const guarded = durable(async () => {
  try {
    await signal("never");
  } finally {
    await shield(async () => {
      await sleep(1000);
      await release();
    });
  }
});
`;

/** The same tests for each runner: what it calls a test, and how it asserts, is all that differs. */
const tests = (head: string) => `${head}
import assert from "node:assert/strict";
import { TestEnvironment } from "@hopskip/testing";

const options = {
  workflows: new URL("./workflows.ts", import.meta.url),
  activities: { send: async (to, { sleep, attempt }) => { await sleep("5s"); if (attempt < 2) throw new Error("busy"); return \`sent to \${to}\`; }, release: () => {} },
};

test("fourteen days pass", async () => {
  const env = await TestEnvironment.create(options);
  assert.equal(await env.run("reminder", "ada"), "sent to ada");
  assert.ok(env.now > Date.UTC(2026, 0, 15));
  assert.equal(env.calls("send").length, 2);
});

test("crashes change nothing", async () => {
  const env = await TestEnvironment.create(options);
  const { coreCrashes, evictions } = await env.crashEverywhere((each) => each.run("reminder", "ada"));
  assert.ok(coreCrashes > 4 && evictions > 2);
});

test("a shield holds over awaits", async () => {
  const env = await TestEnvironment.create(options);
  const run = await env.start("guarded");
  await run.cancel("enough");
  assert.equal((await run.outcome()).status, "cancelled");
  assert.deepEqual(env.calls().map(({ activity }) => activity), ["release"]);
  await env.replay(JSON.parse(JSON.stringify(run.history())));
});

test("a run that waits for ever says for what", async () => {
  const env = await TestEnvironment.create(options);
  await assert.rejects(env.run("guarded"), /Run default:run-1 will never end: it waits for signal "never" \\(operation 1\\)/);
});
`;

export class TestProject implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), "hop-testkit-"));

  constructor() {
    this.write("package.json", '{ "name": "kit-user", "private": true, "type": "module" }\n');
    this.write("workflows.ts", workflows);
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.folder, name), text);
  }

  /** The file with the tests, which import `test` by `head`. */
  writeTests(name: string, head: string): void {
    this.write(name, tests(head));
  }

  /** Runs a command in the project, with `hop` as the executable that bundles. Both outputs together. */
  async run(command: readonly string[], hop: string): Promise<{ readonly code: number; readonly output: string }> {
    const env = { ...process.env, HOP_PATH: hop, NO_COLOR: "1", FORCE_COLOR: "0" };
    const child = Bun.spawn([...command], { cwd: this.folder, env, stdout: "pipe", stderr: "pipe" });
    const [out, error, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
    return { code, output: out + error };
  }

  /** Makes a package of this repository's one of the project's. */
  link(name: string): void {
    symlinkSync(join(root, "node_modules", name), join(this.folder, "node_modules", name));
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
