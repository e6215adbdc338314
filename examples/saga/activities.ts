/**
 * A bank, a warehouse and a carrier that write what they did into one file, a line each.
 *
 * They take a moment and do not listen when they are told to stop, as services do. `SAGA_LEDGER` names the file,
 * `SAGA_STEP_MS` how long a step takes (50 ms when unset); with a file `down` beside the ledger, nothing can be undone.
 */
import { appendFileSync, existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { ActivityFailure } from "@hopskip/runtime";

export interface Line {
  readonly what: "charged" | "refunded" | "reserved" | "released" | "shipped";
  readonly id: string;
  /** By which a real service would know a repetition. */
  readonly key: string;
}

const ledger = process.env.SAGA_LEDGER ?? "ledger.jsonl";
const stepMs = Number(process.env.SAGA_STEP_MS ?? 50);
const wait = (ms: number) => new Promise((done) => setTimeout(done, ms));

async function write(what: Line["what"], id: string, key: string): Promise<void> {
  await wait(stepMs);
  const line: Line = { what, id, key };
  appendFileSync(ledger, `${JSON.stringify(line)}\n`);
}

interface Context {
  readonly idempotencyKey: string;
}

export const charge_card = (txId: string, { idempotencyKey }: Context) => write("charged", txId, idempotencyKey);
export const reserve_inventory = (order: string, { idempotencyKey }: Context) => write("reserved", order, idempotencyKey);
export const ship_order = async (order: string, { idempotencyKey }: Context) => {
  await wait(stepMs * 4);
  await write("shipped", order, idempotencyKey);
};

export const refund_card = (txId: string, { idempotencyKey }: Context) => undo("refunded", txId, idempotencyKey);
export const release_inventory = (order: string, { idempotencyKey }: Context) => undo("released", order, idempotencyKey);

async function undo(what: Line["what"], id: string, key: string): Promise<void> {
  if (existsSync(join(dirname(ledger), "down"))) throw new ActivityFailure("BankDown", "The bank is closed", { nonRetryable: true });
  await write(what, id, key);
}
