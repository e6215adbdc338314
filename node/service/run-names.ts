/** Names for runs that nobody named: made at the edge, since Core draws no random numbers. */
import { instancePrefix } from "#core/run";

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
/** 80 bits: two of a thousand million starts meet with a chance below one in a million. */
const randomChars = 16;
const derivedChars = 24;

/** `wf_` and random base32 characters. */
export function freshInstance(): string {
  return instancePrefix + base32(crypto.getRandomValues(new Uint8Array(randomChars)), randomChars);
}

/** Id of a method call or a signal whose sender gave none: it may be sent again on its way to the run. */
export function freshId(kind: "call" | "message" | "signal"): string {
  return `${kind}_${base32(crypto.getRandomValues(new Uint8Array(randomChars)), randomChars)}`;
}

/**
 * `wf_` and base32 characters drawn from SHA-256 over namespace, type and idempotency key, so that
 * a start sent again, perhaps to another node, meets the run of the first one.
 */
export function derivedInstance(key: { readonly namespace: string; readonly type: string; readonly idempotencyKey: string }): string {
  // None of the parts can hold a NUL: names refuse control characters.
  const digest = new Bun.CryptoHasher("sha256").update(`${key.namespace}\0${key.type}\0${key.idempotencyKey}`).digest();
  return instancePrefix + base32(digest, derivedChars);
}

/** Five bits of each byte. */
function base32(bytes: Uint8Array, chars: number): string {
  let out = "";
  for (let i = 0; i < chars; i++) out += alphabet[(bytes[i] as number) & 31];
  return out;
}
