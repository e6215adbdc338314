/** One order, from the reserved goods to the e-mail: survives whatever happens to the server. */
import { ActivityError, activities, durable, sleep } from "@hopskip/runtime";
import type * as shop from "./activities.ts";
import type { Order, OrderOutcome } from "./order.ts";

/** A shop may call the order back for so long before it is shipped. */
const graceMs = 3000;

const { reserve, release, charge, ship, sendEmail } = activities<typeof shop>({
  startToCloseMs: 5000,
  retry: { initialMs: 100, maxMs: 2000, nonRetryable: ["CardDeclined"] },
});

export const order = durable(async (o: Order): Promise<OrderOutcome> => {
  await reserve({ order: o.id, sku: o.sku, quantity: o.quantity });
  let payment: { charge: string };
  try {
    payment = await charge({ order: o.id, card: o.card, totalCents: o.totalCents, currency: o.currency });
  } catch (error) {
    if (!(error instanceof ActivityError) || error.type !== "CardDeclined") throw error;
    await release({ order: o.id });
    await sendEmail({ order: o.id, to: o.email, template: "declined" });
    return { status: "declined", reason: error.message };
  }
  await sleep(graceMs);
  const { tracking } = await ship({ order: o.id, customer: o.customer, note: o.note });
  await sendEmail({ order: o.id, to: o.email, template: "shipped" });
  return { status: "shipped", charge: payment.charge, tracking };
});
