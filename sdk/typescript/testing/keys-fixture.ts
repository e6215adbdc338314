/** A workflow whose activity has an idempotency key. */
import { activity, durable } from "@hopskip/runtime";

/** Charges once for each order, whoever asks. */
export const chargeOnce = durable(async ({ order, cents }: { order: string; cents: number }) => {
  const { id } = await activity<{ id: string }>("charge", { cents }, { idempotencyKey: order });
  return id;
});
