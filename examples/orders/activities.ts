/**
 * Calls to the shop's services. Each carries the order as its idempotency key, so that one that is
 * repeated (the service is flaky, the worker may die) has its effect once.
 */
import { ActivityFailure } from "@hopskip/runtime";

async function call<T>(path: string, body: { readonly order: string }): Promise<T> {
  const base = process.env.SHOP_URL;
  if (base === undefined) throw new ActivityFailure("NotConfigured", "SHOP_URL is not set", { nonRetryable: true });
  const response = await fetch(`${base}/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": `${path}-${body.order}` },
    body: JSON.stringify(body),
  });
  if (response.status === 402) throw new ActivityFailure("CardDeclined", await response.text(), { nonRetryable: true });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return (await response.json()) as T;
}

export const reserve = (input: { order: string; sku: string; quantity: number }) => call<{ reserved: number }>("reserve", input);
export const release = (input: { order: string }) => call<{ released: boolean }>("release", input);
export const charge = (input: { order: string; card: string; totalCents: number; currency: string }) =>
  call<{ charge: string }>("charge", input);
export const ship = (input: { order: string; customer: string; note: string }) => call<{ tracking: string }>("ship", input);
export const sendEmail = (input: { order: string; to: string; template: string }) => call<{ sent: boolean }>("email", input);
