/** Children in a history: what spawned them, and what their guest is told of their start. */
import {
  type ChildStarted,
  type CommandInit,
  CommandKind,
  closePolicyNames,
  decodeChildSpawned,
  fromBytes,
  ParentClosePolicy,
  type Payload,
} from "#proto";

export interface RecordedSpawn {
  readonly op: number;
  readonly to: string;
  readonly type: string;
  readonly contention: string;
  readonly closePolicy: number;
  readonly input: Payload | undefined;
}

/** Of a `ChildSpawned`. Throws `CodecError`. */
export function recordedSpawn(body: Uint8Array): RecordedSpawn {
  const { op, to, start, input, closePolicy } = fromBytes(decodeChildSpawned, body);
  return { op, to, type: start?.type ?? "", contention: start?.contention ?? "", closePolicy, input };
}

/** Whether the command spawns that child, its input left aside. */
export function spawnsSame(recorded: RecordedSpawn, { kind, op, to, name, start, closePolicy }: CommandInit): boolean {
  return (
    kind === CommandKind.spawn &&
    op === recorded.op &&
    to === recorded.to &&
    name === recorded.type &&
    (start?.contention ?? "") === recorded.contention &&
    (closePolicy || ParentClosePolicy.terminate) === recorded.closePolicy
  );
}

const encoder = new TextEncoder();

/** The answer to a spawn whose start was not refused, as JSON. */
export function startPayload({ generation, ticket, attached }: ChildStarted): Payload {
  return { data: encoder.encode(JSON.stringify({ generation, ticket, attached })), ref: undefined };
}

const policies: Readonly<Record<number, string>> = closePolicyNames;

/** In words; `input` is the payload in words. */
export function spawnText(spawn: Pick<RecordedSpawn, "to" | "type" | "contention" | "closePolicy">, input: string): string {
  const { to, type, contention, closePolicy } = spawn;
  const policy = policies[closePolicy || ParentClosePolicy.terminate] ?? closePolicy;
  return `a child ${to} of type ${JSON.stringify(type)} (contention ${contention || "attach"}, parent-close policy ${policy}) with input ${input}`;
}

export const cancelText = (to: string, reason: string) => `a cancellation of ${to}${reason === "" ? "" : ` (${JSON.stringify(reason)})`}`;
