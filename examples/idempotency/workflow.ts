/** Charges a card once for each order, whoever asks and however often. */
import { activities, durable } from "@hopskip/runtime";
import type * as work from "./activities.ts";

const { charge_card } = activities<typeof work>({ retry: { attempts: 5, initialMs: 200 } });

interface Order {
  readonly id: string;
  readonly cents: number;
}

/** The key is the order's: the checkout, the nightly collection and a support script share one charge. */
export const checkout = durable(async (order: Order) => charge_card(order, { idempotencyKey: order.id }));

/** Another workflow, the same activity and key: it is given what the other one's charge came to. */
export const collect = durable(async (orders: readonly Order[]) =>
  Promise.all(orders.map((order) => charge_card(order, { idempotencyKey: order.id }))),
);
