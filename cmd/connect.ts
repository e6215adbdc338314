/** From a command's options to a server that answers. */
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect as connectTcp, type NetConnectOpts } from "node:net";
import { HopClient } from "#sdk/client";
import { type Context, type GlobalOptions, namespaceName, orInterrupted, serverAddresses, timeoutMs } from "./context.ts";
import { formatDuration } from "./duration.ts";
import { CommandError, exit } from "./failure.ts";
import { faultText } from "./input.ts";
import type { Remote } from "./remote.ts";
import { visible } from "./terminal.ts";

/** An outage of this length is waited out once the server was reached. */
const outageMsMax = 30_000;
const reachMsMax = 5000;

/** Name under which this user's acts stand in histories: a development cluster believes it. */
export function userName(): string {
  const uid = process.getuid?.();
  return nameInPasswd(uid) ?? nonEmpty(process.env.USER) ?? nonEmpty(process.env.LOGNAME) ?? `uid-${uid ?? "unknown"}`;
}

/** The environment may be stripped or another user's; the system's own list is asked first. */
function nameInPasswd(uid: number | undefined): string | undefined {
  try {
    const fields = readFileSync("/etc/passwd", "utf8")
      .split("\n")
      .map((line) => line.split(":"));
    return nonEmpty(fields.find((field) => field[2] === String(uid))?.[0]);
  } catch {
    return undefined;
  }
}

const nonEmpty = (text: string | undefined) => (text === "" ? undefined : text);

export interface RemoteWork {
  readonly isPatient?: boolean;
  readonly startMs?: number;
  readonly lacking?: () => string | undefined;
}

/**
 * Runs `body` with a connection to the server, which is closed afterwards.
 *
 * Fails with exit code 6 where no server listens: at once, or after `startMs` for a command that
 * may follow a server's start too closely. `isPatient`: `body` heeds --timeout itself. `lacking`:
 * what a body that waits is still waiting for.
 */
export async function withRemote<T>(
  context: Context,
  options: GlobalOptions,
  body: (remote: Remote) => Promise<T>,
  { isPatient = false, startMs = 0, lacking }: RemoteWork = {},
): Promise<T> {
  const limitMs = timeoutMs(options);
  const given = serverAddresses(options, context.env);
  const reachMs = limitMs === 0 ? reachMsMax : Math.min(reachMsMax, limitMs);
  const address = await orInterrupted(context.interrupt, untilReached(given, { reachMs, startMs: Math.min(startMs, limitMs || startMs) }));
  const retryMs = limitMs === 0 ? outageMsMax : Math.min(outageMsMax, limitMs);
  const { output } = context;
  let waitedFor: string | undefined;
  const onConnection = (state: "lost" | "back") => {
    if (state === "back") waitedFor = undefined;
    output.say(
      state === "lost"
        ? output.paintErr("yellow", `connection to ${address} lost, trying again`)
        : output.paintErr("green", "connected again"),
    );
  };
  const namespace = namespaceName(options, context.env);
  const onWaiting = (problem: string) => {
    waitedFor = visible(problem);
    output.say(`${output.paintErr("yellow", "waiting:")} ${waitedFor}`);
  };
  const others = given.filter((each) => each !== address);
  const client = HopClient.connect({ address: [address, ...others], namespace, identity: userName(), retryMs, onConnection, onWaiting });
  const remote = remoteOf(client, () => waitedFor);
  try {
    const work = orInterrupted(context.interrupt, body(remote));
    return await (limitMs === 0 || isPatient
      ? work
      : within(limitMs, work, () => lacking?.() ?? waitedFor ?? `the server at ${address} has not answered`));
  } finally {
    remote.close();
  }
}

function within<T>(limitMs: number, work: Promise<T>, why: () => string): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    late.reject(
      new CommandError(exit.unavailable, `Cannot finish within ${formatDuration(limitMs)}: ${why()}`, {
        next: "try again with a longer --timeout",
      }),
    );
  }, limitMs);
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer));
}

/** An HTTP/2 client's first words: its preface and empty settings. A server answers with settings of its own. */
const greeting = Buffer.concat([Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])]);
const settingsFrame = 4;

const lookMs = 100;

/** Looks again for `startMs` where no server listens yet. */
async function untilReached(
  addresses: readonly string[],
  { reachMs, startMs }: { readonly reachMs: number; readonly startMs: number },
): Promise<string> {
  const beganMs = performance.now();
  for (;;) {
    try {
      return await firstReached(addresses, reachMs);
    } catch (error) {
      if (performance.now() - beganMs >= startMs) throw error;
      await Bun.sleep(lookMs);
    }
  }
}

/** The first of the addresses at which a server listens. Rejects with what is wrong with each. */
async function firstReached(addresses: readonly string[], limitMs: number): Promise<string> {
  const failed: CommandError[] = [];
  for (const address of addresses) {
    try {
      await reach(address, limitMs);
      return address;
    } catch (error) {
      failed.push(error as CommandError);
    }
  }
  const [first] = failed as [CommandError];
  if (failed.length === 1) throw first;
  throw new CommandError(exit.unavailable, failed.map(({ message }) => message).join("\n"), {
    next: "check --server and HOP_SERVER, and that at least one of the nodes runs",
    cause: first,
  });
}

/** Resolves when a server that speaks gRPC listens at `address`. */
export function reach(address: string, limitMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connectTcp(socketAddress(address));
    const failAs = (error: CommandError) => {
      socket.destroy();
      reject(error);
    };
    const fail = (why: string, cause?: unknown) => {
      const next =
        address.startsWith("127.") || address.startsWith("localhost")
          ? "start one with `hop dev`"
          : "check --server and HOP_SERVER, and that the server runs";
      failAs(new CommandError(exit.unavailable, `Cannot reach the server at ${address}: ${why}`, { next, cause }));
    };
    socket.setTimeout(limitMs, () => fail(`no answer within ${formatDuration(limitMs)}`));
    socket.once("error", (error) => fail(refusalText(error), error));
    socket.once("connect", () => socket.write(greeting));
    let heard = Buffer.alloc(0);
    socket.on("data", (bytes: Buffer) => {
      heard = Buffer.concat([heard, bytes]);
      if (heard.length < 4) return;
      if (heard[3] !== settingsFrame) return failAs(otherProtocol(address));
      socket.destroy();
      resolve();
    });
    socket.once("end", () => failAs(otherProtocol(address)));
  });
}

const otherProtocol = (address: string) =>
  new CommandError(exit.unavailable, `Cannot use the server at ${address}: it does not speak gRPC: is this the --http address?`, {
    next: "give the address that `hop dev` or `hop server start` names as the server's, 127.0.0.1:7070 when unset",
  });

export function socketAddress(address: string): NetConnectOpts {
  if (address.startsWith("unix:")) return { path: address.slice(5) };
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(address.slice(colon + 1)) };
}

function refusalText(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ECONNREFUSED" || code === "ENOENT") return "nothing listens there";
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "its host name has no address";
  return faultText(error);
}

/** The client library, as commands use it. */
export function remoteOf(client: HopClient, waitedFor: () => string | undefined = () => undefined): Remote {
  return {
    address: client.address,
    waitedFor,
    cluster: client.cluster,
    schedules: client.schedules,
    channels: client.channels,
    sendToChannel: (value) => client.ask<"channel">({ kind: "channel", value }, true),
    start: (request) => {
      // With a key, a start whose reply was lost can be sent again and meets its own run.
      const idempotencyKey = request.idempotencyKey ?? `run-${randomUUID()}`;
      return client.ask<"start">({ kind: "start", value: { ...request, idempotencyKey } }, true);
    },
    result: (value) => client.ask<"result">({ kind: "result", value }, true),
    signal: (value) => {
      const id = value.id ?? `signal-${randomUUID()}`;
      return client.ask<"signal">({ kind: "signal", value: { ...value, id } }, true);
    },
    // Asked again by its command: with no worker an answer may never come.
    query: (value) => client.ask<"query">({ kind: "query", value }, false),
    call: (value) => client.ask<"call">({ kind: "call", value }, true),
    cancel: (run, reason) => client.cancel(run, reason),
    terminate: (run, reason) => client.terminate(run, reason),
    pause: (run, reason) => client.pause(run, reason),
    unpause: (run, reason) => client.unpause(run, reason),
    replayDeadLetter: (letter) => client.replayDeadLetter(letter),
    dropDeadLetter: (letter, reason) => client.dropDeadLetter(letter, reason),
    resume: async ({ run = "", bundle = new Uint8Array(0), newest = false }) => ({ bundle: await client.resume(run, { bundle, newest }) }),
    list: (request) => client.list(request),
    describe: (run) => client.describe(run),
    history: ({ run = "", fromSeq = 0, follow = false, schedule = false, channel = false, key = false }) =>
      client.history(run, { fromSeq, follow, schedule, channel, key }),
    stream: ({ run = "", fromOffset = 0, generation = 0, channel = false, untilNow = false }) =>
      client.stream(run, { fromOffset, generation, channel, untilNow }),
    deploy: ({ namespace = client.namespace, code = new Uint8Array(0), types = [], held = false }) =>
      client.deploy({ namespace, code, types, held }),
    routeDeployment: (request) => client.route(request),
    listDeployments: (namespace) => client.deployments(namespace),
    blob: (sha256) => client.blob(sha256),
    close: () => client.close(),
  };
}
