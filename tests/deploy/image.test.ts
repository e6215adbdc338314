/**
 * The images without an engine for them: the Dockerfile as hadolint reads it, and its last stage
 * acted out, the executable as its user in a folder that holds nothing but the libraries it links.
 */
import { expect, test } from "bun:test";
import { chmodSync, chownSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { executable, HopProcess } from "../cluster/harness.ts";
import { readSource, root } from "../sources.ts";
import { hadolintTool, outputOf, reasonsOf } from "./tools.ts";

const hadolint = await hadolintTool();
const missing = hadolint.file === undefined ? ` (skipped here: ${reasonsOf(hadolint)})` : "";

test.skipIf(hadolint.file === undefined)(`hadolint finds nothing wrong with the Dockerfile [needs hadolint]${missing}`, async () => {
  expect(await outputOf([hadolint.file ?? "", join(root, "deploy/docker/Dockerfile")])).toBe("");
});

test("no image runs as root, all end on SIGTERM, and only the server's is asked how it is", async () => {
  const stages = new Map(
    (await readSource("deploy/docker/Dockerfile"))
      .split(/^(?=FROM )/m)
      .slice(1)
      .map((stage) => [/ AS (\w+)/.exec(stage)?.[1] ?? "", stage]),
  );
  expect([...stages.keys()]).toEqual(["build", "hop", "worker", "server"]);
  expect(stages.get("hop")).toMatch(/^USER 10001:10001$/m);
  expect(stages.get("hop")).toMatch(/^STOPSIGNAL SIGTERM$/m);
  for (const name of ["worker", "server"]) expect(stages.get(name)).not.toMatch(/^USER /m);
  expect(stages.get("server")).toMatch(/^HEALTHCHECK .*hop-healthz/m);
  expect(stages.get("worker")).not.toContain("HEALTHCHECK");
});

const uid = 10001;
const mayEnter =
  process.getuid?.() === 0 &&
  Bun.which("chroot") !== null &&
  Bun.spawnSync(["unshare", "--mount", "--pid", "--fork", "true"]).exitCode === 0;

/** A root folder as the image has it. */
function imageRoot(): string {
  const folder = mkdtempSync(join(tmpdir(), "hop-image-"));
  chmodSync(folder, 0o755);
  for (const dir of ["proc", "dev", "tmp", "etc", "data", "cache", "usr/local/bin", "bin"])
    mkdirSync(join(folder, dir), { recursive: true });
  chmodSync(join(folder, "tmp"), 0o1777);
  for (const dir of ["data", "cache"]) chownSync(join(folder, dir), uid, uid);
  copyFileSync(executable, join(folder, "usr/local/bin/hop"));
  copyFileSync(join(root, "deploy/docker/healthz"), join(folder, "usr/local/bin/hop-healthz"));
  copyFileSync("/bin/bash", join(folder, "bin/bash"));
  writeFileSync(join(folder, "etc/passwd"), `hop:x:${uid}:${uid}::/data:/usr/sbin/nologin\n`);
  const linked = Bun.spawnSync(["ldd", executable, "/bin/bash", join(root, "dist/v8/hopv8.node")]).stdout.toString();
  for (const [library] of linked.matchAll(/\/lib\S*(?= \()/g)) {
    const copy = join(folder, library);
    mkdirSync(dirname(copy), { recursive: true });
    if (!existsSync(copy)) copyFileSync(library, copy);
  }
  return folder;
}

/** Enters the folder with a /proc and /dev, as an engine does, as the image's user. What is mounted goes with the process. */
const within = (folder: string, command: string) => [
  "unshare",
  "--mount",
  "--propagation=private",
  "sh",
  "-c",
  `mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec=${uid}:${uid} "$0" ${command}`,
  folder,
];

const enter = (folder: string, command: string) =>
  new HopProcess(within(folder, command), { cwd: folder, env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOP_CACHE: "/cache" } });

const start = "/usr/local/bin/hop server start --data /data --listen 0.0.0.0:0 --http 127.0.0.1:0 --ready-line";

test.skipIf(!mayEnter)(
  "the server runs as the image's user with the libraries it links, and its health is asked without a client [needs root]",
  async () => {
    const folder = imageRoot();
    const running: HopProcess[] = [];
    try {
      const server = enter(folder, `${start} --bootstrap --advertise localhost:7072 --peer-port 0`);
      running.push(server);
      const [, port = ""] = await server.line(/^ready grpc=\S+ http=127\.0\.0\.1:(\d+)/m);
      const status = await outputOf(["cat", `/proc/${server.pid}/status`]);
      expect(status).toMatch(new RegExp(`^Uid:\\t${uid}\\t${uid}`, "m"));
      const health = async (path: string) => {
        const asked = enter(folder, `/usr/local/bin/hop-healthz ${path} 127.0.0.1 ${port}`);
        running.push(asked);
        return asked.exited;
      };
      expect(await health("/healthz")).toBe(0);
      expect(await health("/readyz")).toBe(0);
      expect(await health("/nothing-here")).toBe(1);
      process.kill(server.pid, "SIGTERM");
      expect(await server.exited).toBe(0);
      expect(await health("/healthz")).toBe(1);
    } finally {
      for (const each of running) each.signalGroup("SIGKILL");
      await Promise.all(running.map((each) => each.exited));
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

test.skipIf(!mayEnter)(
  "told nothing, the server says what it has to be told, and ends with a code of wrong usage [needs root]",
  async () => {
    const folder = imageRoot();
    try {
      const server = enter(folder, start);
      expect(await server.exited).toBe(2);
      expect(server.stderr).toContain("name its peers with --seed, or make a new cluster with --bootstrap");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
