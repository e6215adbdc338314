/** Real S3 servers, each with a folder and a port of its own: test tools only, nothing links them. */
import { afterAll, beforeAll, describe, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { present } from "#core/base";
import { until } from "../until.ts";
import { type BuiltTool, type GoTool, goTool } from "./go-tool.ts";

const versitygw: GoTool = { name: "versitygw", path: "github.com/versity/versitygw/cmd/versitygw", version: "v1.8.0" };
const minio: GoTool = { name: "minio", path: "github.com/minio/minio", version: "v0.0.0-20260212201848-7aac2a2c5b7c" };

export const credentials = { accessKeyId: "test", secretAccessKey: "testsecret" };
export const bucket = "objects";

/** On a machine that is busy with other things too. */
const patienceMs = 120_000;

interface Launch {
  readonly args: (port: number) => string[];
  readonly env: Record<string, string>;
}

export interface ServerKind {
  readonly name: string;
  /** Its executable, or why there is none. */
  readonly tool: BuiltTool;
  readonly launch: (folder: string) => Launch;
}

/** The one that the default suite builds. */
export const versitygwServer = async (): Promise<ServerKind> => ({
  name: "versitygw",
  tool: await goTool(versitygw),
  launch: (folder) => {
    const [iam, data] = [folderIn(folder, "iam"), folderIn(folder, "data")];
    const keys = ["--access", credentials.accessKeyId, "--secret", credentials.secretAccessKey];
    const args = (port: number) => ["--port", `127.0.0.1:${port}`, ...keys, "--quiet", "--keep-alive", "--iam-dir", iam, "posix", data];
    return { args, env: {} };
  },
});

/** Its build takes four minutes, so it is not made by the way. */
export const minioServer = async (): Promise<ServerKind> => ({
  name: "MinIO",
  tool: await goTool(minio, process.env.HOP_TEST_MINIO === "1" ? undefined : "HOP_TEST_MINIO=1 builds it, in about four minutes"),
  launch: (folder) => {
    const data = folderIn(folder, "data");
    const root = { MINIO_ROOT_USER: credentials.accessKeyId, MINIO_ROOT_PASSWORD: credentials.secretAccessKey };
    const args = (port: number) => ["server", data, "--address", `127.0.0.1:${port}`, "--quiet"];
    return { args, env: { ...root, MINIO_BROWSER: "off", MINIO_UPDATE: "off" } };
  },
});

export class S3Server implements AsyncDisposable {
  readonly port: number;
  private readonly folder: string;
  private readonly command: readonly string[];
  private readonly env: Record<string, string>;
  private child: Subprocess | undefined;

  private constructor(port: number, folder: string, command: readonly string[], env: Record<string, string>) {
    this.port = port;
    this.folder = folder;
    this.command = command;
    this.env = env;
  }

  /** Starts a server with one empty bucket. */
  static async start({ tool, launch }: ServerKind): Promise<S3Server> {
    if (tool.file === undefined) throw new Error(tool.reason);
    const folder = mkdtempSync(join(tmpdir(), "hop-s3-"));
    const port = await freePort();
    const { args, env } = launch(folder);
    const server = new S3Server(port, folder, [tool.file, ...args(port)], env);
    try {
      await server.up();
      await makeBucket(server.endpoint);
      return server;
    } catch (error) {
      await server[Symbol.asyncDispose]();
      throw error;
    }
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Where versitygw has the bucket: a file for each object, by its key. */
  get bucketFolder(): string {
    return join(this.folder, "data", bucket);
  }

  /** Starts the process; resolves when it answers. */
  async up(): Promise<void> {
    const env = { PATH: process.env.PATH ?? "", HOME: this.folder, ...this.env };
    const child = Bun.spawn([...this.command], { cwd: this.folder, env, stdin: "ignore", stdout: "ignore", stderr: "ignore" });
    this.child = child;
    await until(
      async () => {
        if (child.exitCode !== null) throw new Error(`${this.command[0]} ended with ${child.exitCode}`);
        // Any answer will do; 503 is what MinIO says until it is ready.
        return fetch(this.endpoint).then(
          ({ status }) => status < 500,
          () => false,
        );
      },
      { what: `${this.command[0]} to answer` },
    );
  }

  /** Ends the process without warning. */
  async kill(): Promise<void> {
    this.child?.kill("SIGKILL");
    await this.child?.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Registers tests that have a server of this kind, or one that is skipped and says why. */
export function onServer(title: string, kind: ServerKind, register: (server: () => S3Server) => void): void {
  const { reason } = kind.tool;
  if (reason !== undefined) {
    console.log(`skipped: ${title} on ${kind.name}: ${reason}`);
    test.skip(`${title} on ${kind.name} [needs it: ${reason}]`, () => {});
    return;
  }
  setDefaultTimeout(patienceMs);
  describe(`${title} on ${kind.name}`, () => {
    let server: S3Server | undefined;
    beforeAll(async () => {
      server = await S3Server.start(kind);
    });
    afterAll(() => server?.[Symbol.asyncDispose]());
    register(() => present(server, "a server that has started"));
  });
}

async function makeBucket(endpoint: string): Promise<void> {
  const { CreateBucketCommand, S3Client } = await import("@aws-sdk/client-s3");
  const client = new S3Client({ endpoint, region: "us-east-1", forcePathStyle: true, credentials });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
}

function folderIn(folder: string, name: string): string {
  const path = join(folder, name);
  mkdirSync(path);
  return path;
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as { port: number };
      probe.close(() => resolve(port));
    });
  });
}
