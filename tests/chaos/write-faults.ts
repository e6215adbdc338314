/**
 * A fault at one write of the log, under load: what was promised before it must hold after it.
 *
 * Each case runs on a server that is up and laid out, and leaves one that is up again.
 */
import { HopError } from "#sdk/client";
import { until } from "#tests/cluster";
import { drive, finish, Ledger } from "./ledger.ts";
import { provePromises } from "./proof.ts";
import type { Rig } from "./rig.ts";
import { Strace, writeCalls } from "./strace.ts";

/** What strikes: the process dies, the disk fails, is full, takes nothing once, or is slow. */
export const faults = ["kill", "EIO", "ENOSPC", "short", "delay", "delay+kill"] as const;
export type Fault = (typeof faults)[number];

const injected: Readonly<Record<Fault, string>> = {
  kill: "signal=KILL",
  EIO: "error=EIO",
  ENOSPC: "error=ENOSPC",
  // The call is answered with 0 bytes and not made: the shortest of short writes.
  short: "retval=0",
  delay: "delay_enter=100ms",
  "delay+kill": "delay_enter=60s",
};

const survives: Readonly<Record<Fault, boolean>> = { kill: false, EIO: false, ENOSPC: true, short: true, delay: true, "delay+kill": false };

/** Longest start of a server on the folder of one that died. */
export const readyMsMax = 2000;

export interface CaseResult {
  readonly fault: Fault;
  /** Of a thread, as strace counts. */
  readonly when: number;
  /** Place of the struck call among all writes of the log since the load began. */
  readonly struckAt: number;
  /** Promises that the clients had when the server was gone, or at the end where it survived. */
  readonly acks: number;
  readonly refused: number;
  /** Undefined where the server was not started again. */
  readonly readyMs: number | undefined;
}

let cases = 0;

export async function writeFault(rig: Rig, fault: Fault, when: number): Promise<CaseResult> {
  const ledger = new Ledger({ prefix: `${fault.replace("+", "-")}-${when}-${++cases}`, runs: 6, signals: 16 + Math.ceil(when * 1.5) });
  const outcome = survives[fault] ? await survivor(rig, ledger, fault, when) : await casualty(rig, ledger, fault, when);
  await finish(rig.client, ledger);
  await provePromises(rig, ledger);
  return { fault, when, refused: ledger.refused, ...outcome };
}

async function strike(rig: Rig, fault: Fault, when: number): Promise<Strace> {
  await rig.untilLaidOut();
  return Strace.attach(rig.server.process.pid, { calls: writeCalls, paths: [rig.segment()], fault: injected[fault], when: String(when) });
}

/** The server dies, by itself or by our hand while the write is held. */
async function casualty(rig: Rig, ledger: Ledger, fault: Fault, when: number) {
  const { process } = rig.server;
  const strace = await strike(rig, fault, when);
  const client = rig.connect(0);
  try {
    const driven = drive(client, ledger);
    if (fault === "delay+kill") {
      await strace.untilHeld();
      // Whatever was promised by now must rest on earlier writes: this one is never made.
      process.signal("SIGKILL");
      // A tracer that waits keeps the dead process from being seen as ended.
      await strace.kill();
    }
    await until(() => process.code !== undefined, { what: () => `the server to end; ${strace.count} writes of the log were seen` });
    const finished = await driven;
    if (finished === ledger.runs.size) throw new Error(`All runs ended before write ${when} was struck`);
    if (fault === "EIO") expectPoison(process.code, process.stderr);
    const { acks } = ledger;
    const struckAt = strace.struckAt() ?? strace.count;
    const readyMs = await rig.restart();
    if (readyMs > readyMsMax) throw new Error(`The server was ready after ${Math.round(readyMs)} ms, want at most ${readyMsMax}`);
    await provePromises(rig, ledger);
    return { acks, struckAt, readyMs };
  } finally {
    client.close();
    await strace[Symbol.asyncDispose]();
  }
}

function expectPoison(code: number | undefined, stderr: string): void {
  if (code === 1 && stderr.includes("can't go on")) return;
  throw new Error(`A server whose disk failed ended with code ${code}, want 1 and a message that says so:\n${stderr}`);
}

/** The server goes on by itself. */
async function survivor(rig: Rig, ledger: Ledger, fault: Fault, when: number) {
  const { process } = rig.server;
  const strace = await strike(rig, fault, when);
  try {
    const driven = drive(rig.client, ledger);
    const struckAt = await strace.untilStruck();
    const finished = await driven;
    if (process.code !== undefined) throw new Error(`The server ended with code ${process.code}, want it to go on:\n${process.stderr}`);
    if (finished < ledger.runs.size)
      throw new HopError("INTERNAL", `${ledger.runs.size - finished} runs got an error though the server went on`);
    return { acks: ledger.acks, struckAt, readyMs: undefined };
  } finally {
    await strace[Symbol.asyncDispose]();
  }
}
