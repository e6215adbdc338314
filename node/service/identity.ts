/**
 * Who calls: call metadata → `Identity`.
 *
 * A development cluster believes the header `hop-user` and marks the identity as unverified. A
 * verifier of bearer tokens takes this function's place where callers have to prove who they are.
 */
import type { Metadata } from "@grpc/grpc-js";
import { HopError, nameProblem } from "#core/base";
import type { Identity } from "#proto";

export const userHeader = "hop-user";

/** Throws `HopError` UNAUTHENTICATED when the caller's claim can't be taken. */
export type IdentitySource = (metadata: Metadata) => Identity;

export const localIdentity: IdentitySource = (metadata) => {
  const claimed = metadata.get(userHeader)[0];
  if (claimed === undefined) return { issuer: "local", subject: "anonymous", verified: false, causeSeq: 0 };
  const subject = decoded(String(claimed));
  const problem = nameProblem(subject);
  if (problem !== undefined) throw new HopError("UNAUTHENTICATED", `Cannot take the caller's name from ${userHeader}: it ${problem}`);
  return { issuer: "local", subject, verified: false, causeSeq: 0 };
};

/** Header values are ASCII: what is outside is percent-encoded by the caller. */
function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
