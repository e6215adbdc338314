/** A bank whose ledger is a file: a line for each charge that was executed. */
import { appendFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

const ledger = process.env.BANK_LEDGER ?? "ledger.jsonl";

interface Context {
  readonly run: string;
  readonly idempotencyKey: string;
}

export const charge_card = async (order: { readonly id: string; readonly cents: number }, { run, idempotencyKey }: Context) => {
  await sleep(Number(process.env.BANK_MS ?? 50));
  await appendFile(ledger, `${JSON.stringify({ order: order.id, cents: order.cents, run, idempotencyKey })}\n`);
  // The key goes on to the bank: an execution whose result is lost with its worker is tried again.
  return { charge: `ch_${idempotencyKey}`, by: run };
};
