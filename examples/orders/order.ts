/** An order as the saga takes it, and what came of it. */
export interface Order {
  readonly id: string;
  readonly customer: string;
  readonly email: string;
  readonly sku: string;
  readonly quantity: number;
  /** In the currency's smallest unit. */
  readonly totalCents: number;
  readonly currency: string;
  readonly card: string;
  readonly note: string;
}

export type OrderOutcome =
  | { readonly status: "shipped"; readonly charge: string; readonly tracking: string }
  | { readonly status: "declined"; readonly reason: string };
