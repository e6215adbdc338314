/** The commands that keep running: `hop dev` with hot reload, `hop server start`, `hop worker`; and the audit of what they leave. */
import { expect, test } from "bun:test";
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Cluster, executable, type HopProcess, type RunOptions, until } from "./harness.ts";

const anyPort = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/** `hop dev` in a folder of the cluster, when it is ready, and the environment that reaches it. */
async function startDev(hop: Cluster, cwd: string, args: readonly string[] = []): Promise<{ dev: HopProcess; at: RunOptions }> {
  const dev = hop.launch(["dev", ...anyPort, ...args], { cwd });
  const [, address = ""] = await dev.line(/^ {2}server +(\S+)$/m);
  await dev.line(/^(Ready\.|No workflows here yet)/m);
  return { dev, at: { cwd, env: { HOP_SERVER: address } } };
}

test("a new project runs at once, reloads when it changes, and goes on after kill -9", async () => {
  await using hop = new Cluster();
  const made = await hop.expectOk(["init", "hello"]);
  expect(made).toContain("cd hello && hop dev");
  const first = await startDev(hop, "hello");
  expect(first.dev.stderr).toMatch(new RegExp(`data +${join(hop.folder, "hello", ".hop")} `));
  expect(first.dev.stderr).toContain("callers  not verified");
  const started = await hop.expectOk(["run", "hello", "--input", '"Ada"'], first.at);
  const run = started.trimEnd();
  await until(async () => (await hop.run(["workflow", "query", run, "step"], first.at)).stdout === '"waiting"\n');

  await first.dev.kill();
  const second = await startDev(hop, "hello");
  const result = JSON.parse(await hop.expectOk(["workflow", "result", run], second.at)) as { greeting: string };
  expect(result.greeting).toBe("Hello, Ada!");
  const { events } = JSON.parse(await hop.expectOk(["audit", run, "-o", "json"], second.at)) as { events: { event: string }[] };
  expect(events.map(({ event }) => event)).toEqual([
    "RunStarted",
    "ActivityScheduled",
    "ActivityCompleted",
    "TimerStarted",
    "TimerFired",
    "ActivityScheduled",
    "ActivityCompleted",
    "RunCompleted",
  ]);

  // Activities: what is called next is the new code, what it imports included.
  const activities = join(hop.folder, "hello", "activities.ts");
  writeFileSync(join(hop.folder, "hello", "words.ts"), 'export const greeting = "Ahoy";\n');
  const ahoy = readFileSync(activities, "utf8").replace("Hello,", "$" + "{greeting},");
  writeFileSync(activities, `import { greeting } from "./words.ts";\n${ahoy}`);
  writeFileSync(
    join(hop.folder, "hello", "quick.ts"),
    'import { activity, durable } from "@hopskip/runtime";\nexport const quick = durable(async (name: string) => activity<string>("greet", name));\n',
  );
  await second.dev.line(/quick\.ts: quick/);
  expect(await hop.expectOk(["run", "quick", "--input", '"Bob"', "--follow"], second.at)).toBe('"Ahoy, Bob!"\n');

  // A new activity is known to the worker without a restart of the command.
  appendFileSync(activities, "export const twice = (n: number) => n * 2;\n");
  await second.dev.line(/activities .*twice/);
  writeFileSync(
    join(hop.folder, "hello", "quick.ts"),
    'import { activity, durable } from "@hopskip/runtime";\nexport const double = durable(async (n: number) => activity<number>("twice", n));\n',
  );
  await second.dev.line(/quick\.ts: double/);
  expect(await hop.expectOk(["run", "double", "--input", "21", "--follow"], second.at)).toBe("42\n");

  // Code that can't be bundled is shown and the code before it stays.
  writeFileSync(
    join(hop.folder, "hello", "quick.ts"),
    'import { durable } from "@hopskip/runtime";\nexport const double = durable(async (n) => {\n',
  );
  await second.dev.line(/Cannot bundle quick\.ts:\n {2}quick\.ts:/);
  expect(await hop.expectOk(["run", "double", "--input", "4", "--follow"], second.at)).toBe("8\n");
  expect(await second.dev.stop()).toBe(0);
  expect(second.dev.stderr).toContain("Stopping");
}, 120_000);

test("hop dev lets a blocked run go on as soon as its code is mended", async () => {
  await using hop = new Cluster();
  mkdirSync(join(hop.folder, "project"));
  const file = join(hop.folder, "project", "breaks.ts");
  const code = (top: string) =>
    `import { durable, now } from "@hopskip/runtime";\n${top}\nexport const breaks = durable(async () => "mended");\n`;
  writeFileSync(file, code('if (now() > 0) throw new Error("fails when it is loaded");'));
  const { dev, at } = await startDev(hop, "project", ["breaks.ts"]);
  const run = (await hop.expectOk(["run", "breaks"], at)).trimEnd();
  await until(async () => (await hop.run(["workflow", "list", "--status", "blocked", "-o", "ids"], at)).stdout === `${run}\n`);
  // New code with the same fault, then code without it.
  writeFileSync(file, code('if (now() > 0) throw new Error("fails again");'));
  await dev.line(/was tried again on the new code and is blocked again/);
  expect(dev.stderr).not.toContain("goes on with the new code");
  writeFileSync(file, code(""));
  await dev.line(/goes on with the new code/);
  expect(await hop.expectOk(["workflow", "result", run], at)).toBe('"mended"\n');
  expect(await dev.stop()).toBe(0);
}, 60_000);

test("hop dev in an empty folder says what to do, and finds the workflow that is written then", async () => {
  await using hop = new Cluster();
  mkdirSync(join(hop.folder, "empty"));
  const { dev, at } = await startDev(hop, "empty");
  expect(dev.stderr).toContain("No workflows here yet: `hop init NAME` makes a project");
  writeFileSync(
    join(hop.folder, "empty", "late.ts"),
    'import { durable } from "@hopskip/runtime";\nexport const late = durable(async () => 7);\n',
  );
  await dev.line(/late\.ts: late/);
  expect(await hop.expectOk(["run", "late", "--follow"], at)).toBe("7\n");
}, 60_000);

test("a second server on one data folder is refused with 6 and the holder's process id", async () => {
  await using hop = new Cluster();
  const server = await hop.server();
  const { code, stderr } = await hop.run(["server", "start", "--data", server.data, ...anyPort]);
  expect(code).toBe(6);
  expect(stderr).toContain(`process ${server.process.pid} uses it`);
});

test("a port that is taken is refused with 6 and named", async () => {
  await using hop = new Cluster();
  const server = await hop.server();
  const { code, stderr } = await hop.run(["server", "start", "--data", "other", "--listen", server.grpc, "--http", "127.0.0.1:0"]);
  expect(code).toBe(6);
  expect(stderr).toContain(`Cannot listen on ${server.grpc}`);
});

test("a worker of its own runs workflows and activities, waits for its server, and ends in good order", async () => {
  await using hop = new Cluster();
  await hop.expectOk(["init", "hello"]);
  const server = await hop.server();
  const worker = await hop.worker(
    server,
    ["--mode", "v8", "--activities", "activities.ts", "--slots", "4", "--id", "worker-one", "--lane", "isolate"],
    { cwd: "hello" },
  );
  await hop.expectOk(["deploy", "hello/hello.ts"], { server });
  const run = (await hop.expectOk(["run", "hello", "--input", '"Ada"'], { server })).trimEnd();
  await until(async () => (await hop.run(["workflow", "query", run, "step"], { server })).stdout === '"waiting"\n');
  await server.kill();
  await server.restart();
  await hop.expectOk(["workflow", "result", run], { server });
  expect(await hop.expectOk(["audit", run], { server })).toContain("by worker-one");
  expect(await worker.stop()).toBe(0);
  expect(await server.stop()).toBe(0);
}, 60_000);

test("hop run --follow outlives its server and ends with the run", async () => {
  await using hop = new Cluster();
  await hop.expectOk(["init", "hello"]);
  const server = await hop.server({ args: ["--worker", "--activities", join(hop.folder, "hello/activities.ts")] });
  await hop.expectOk(["deploy", "hello/hello.ts"], { server });
  const following = hop.launch(["run", "hello", "--input", '"Ada"', "--instance", "one", "--follow"], { server });
  await until(async () => (await hop.run(["workflow", "query", "one", "step"], { server })).stdout === '"waiting"\n');
  await server.kill();
  await following.line(/connection to \S+ lost, trying again/);
  await server.restart();
  expect(await following.exited).toBe(0);
  expect(following.stderr).toContain("connected again");
  expect(JSON.parse(following.stdout)).toMatchObject({ greeting: "Hello, Ada!" });
}, 60_000);

test("hop run --follow of a server that stays away ends with 6", async () => {
  await using hop = new Cluster();
  await hop.expectOk(["init", "hello"]);
  const server = await hop.server();
  await hop.expectOk(["deploy", "hello/hello.ts"], { server });
  const following = hop.launch(["run", "hello", "--input", '"Ada"', "--follow", "--timeout", "3s"], { server });
  await following.line(/\(started\)/);
  await server.kill();
  expect(await following.exited).toBe(6);
  expect(following.stderr.match(/lost, trying again/g)).toHaveLength(1);
}, 60_000);

test("without a worker a query and show say so", async () => {
  await using hop = new Cluster();
  await hop.expectOk(["init", "hello"]);
  const server = await hop.server();
  await hop.expectOk(["deploy", "hello/hello.ts"], { server });
  await hop.expectOk(["run", "hello", "--input", '"Ada"', "--instance", "one"], { server });
  const { code, stderr } = await hop.run(["workflow", "query", "one", "step", "--timeout", "1s"], { server });
  expect({ code, stderr }).toMatchObject({ code: 6, stderr: expect.stringContaining("no worker that runs workflows is connected") });
  expect(await hop.expectOk(["workflow", "show", "one"], { server })).toContain(
    "waits for  a worker: none that runs workflows is connected",
  );
}, 60_000);

test("output that nobody reads any more is no failure", async () => {
  await using hop = new Cluster();
  const { exitCode, stdout, stderr } = Bun.spawnSync(["bash", "-c", `'${executable}' completion bash | true; echo "\${PIPESTATUS[0]}"`], {
    cwd: hop.folder,
  });
  expect({ exitCode, out: stdout.toString(), err: stderr.toString() }).toEqual({ exitCode: 0, out: "0\n", err: "" });
});

test("hop audit --data checks what a stopped server left, and finds a changed byte", async () => {
  await using hop = new Cluster();
  await hop.expectOk(["init", "hello"]);
  const server = await hop.server({ args: ["--worker", "--activities", join(hop.folder, "hello/activities.ts")] });
  await hop.expectOk(["deploy", "hello/hello.ts"], { server });
  await hop.expectOk(["run", "hello", "--input", '"Ada"', "--instance", "one", "--follow"], { server });
  const live = JSON.parse(await hop.expectOk(["audit", "one", "-o", "json"], { server })) as { root: string; size: number };
  await server.kill();

  const offline = JSON.parse(await hop.expectOk(["audit", "--data", "data", "-o", "json"])) as {
    partition: string;
    size: number;
    root: string;
  }[];
  expect(offline).toContainEqual({ partition: "run/default:one", size: live.size, root: live.root });
  expect(await hop.expectOk(["audit", "one", "--data", "data"])).toContain(live.root);
  expect((await hop.run(["audit", "nobody", "--data", "data"])).code).toBe(4);
  expect((await hop.run(["audit", "--data", "hello"])).code).toBe(4);

  const [log = ""] = readdirSync(join(server.data, "log")).filter((name) => name.endsWith(".log"));
  const file = join(server.data, "log", log);
  const bytes = readFileSync(file);
  bytes[200] = (bytes[200] as number) ^ 1;
  writeFileSync(file, bytes);
  const { code, stderr } = await hop.run(["audit", "--data", "data"]);
  expect(code).toBe(1);
  expect(stderr).toContain(`${log} is damaged at byte`);
}, 60_000);

test("hop init refuses to write over files, with 5", async () => {
  await using hop = new Cluster();
  await hop.expectOk(["init", "twice"]);
  rmSync(join(hop.folder, "twice", "README.md"));
  const { code, stderr } = await hop.run(["init", "twice"]);
  expect(code).toBe(5);
  expect(stderr).toContain("it already has hello.ts");
  expect(existsSync(join(hop.folder, "twice", "README.md"))).toBe(false);
});

test("modes that are not built in are refused with 2", async () => {
  await using hop = new Cluster();
  for (const mode of ["wasm", "advm"]) {
    const { code, stderr } = await hop.run(["worker", "--mode", mode]);
    expect({ mode, code }).toEqual({ mode, code: 2 });
    expect(stderr).toContain(`mode ${mode} is not built into this version`);
  }
});

test("version and completion need no server", async () => {
  await using hop = new Cluster();
  expect(await hop.expectOk(["version"])).toBe(await hop.expectOk(["--version"]));
  for (const shell of ["bash", "zsh", "fish"]) expect(await hop.expectOk(["completion", shell])).toContain("hop workflow list -o ids");
});
