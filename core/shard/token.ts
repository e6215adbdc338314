/** The partition that a worker's task token names. */
import { type Partition, parseRunId, runPartition } from "#core/base";
import type { TaskToken } from "#proto";

/** Undefined where the token's run is not an address: it then names nothing. */
export function partitionOfToken(token: TaskToken): Partition | undefined {
  const id = parseRunId(token.run);
  return typeof id === "string" ? runPartition(id) : undefined;
}
