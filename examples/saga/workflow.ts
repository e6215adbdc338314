/** Opens an account: what it did is undone by the engine whenever it does not come to its end. */
import { activity, compensate, durable, encode } from "@hopskip/runtime";

export interface Order {
  readonly id: string;
}

export const openAccount = durable(async (order: Order) => {
  const txId = `${order.id}-charge`; // replay-stable
  compensate("refund_card", encode(txId)); // durable before the effect
  await activity("charge_card", encode(txId)); // idempotent on txId

  compensate("release_inventory", encode(order.id));
  await activity("reserve_inventory", encode(order.id));

  await activity("ship_order", encode(order.id));
});
