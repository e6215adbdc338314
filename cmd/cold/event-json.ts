/**
 * What an event says, as a text of JSON: the message of its kind, hashes in hex, and payloads as the
 * JSON that they hold, with all its digits.
 */
import { toHex } from "#core/base";
import { CodecError, type Payload } from "#proto";
import { messageOf } from "../history.ts";

/** Null where the kind is not known to this version, or its message can't be read. */
export function eventJson(kind: number, payload: Uint8Array): string | null {
  try {
    const message = messageOf(kind, payload);
    return message === undefined ? null : jsonOf(message);
  } catch (error) {
    if (error instanceof CodecError) return null;
    throw error;
  }
}

function jsonOf(value: unknown): string {
  if (value === undefined) return "null";
  if (value instanceof Uint8Array) return JSON.stringify(toHex(value));
  if (Array.isArray(value)) return `[${value.map(jsonOf).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (isPayload(value)) return payloadText(value);
  const fields = Object.entries(value).map(([name, field]) => `${JSON.stringify(name)}:${jsonOf(field)}`);
  return `{${fields.join(",")}}`;
}

/** No other message has these fields. */
const isPayload = (value: object): value is Payload => "data" in value && "ref" in value && value.data instanceof Uint8Array;

const decoder = new TextDecoder("utf-8", { fatal: true });

function payloadText({ data, ref }: Payload): string {
  if (ref !== undefined) return `{"blob":"${toHex(ref.sha256)}","size":${ref.size}}`;
  if (data.length === 0) return "null";
  return jsonText(data) ?? JSON.stringify({ base64: Buffer.from(data).toString("base64") });
}

/** Undefined where the bytes are no JSON that every reader takes: DuckDB refuses half a surrogate pair, which V8 does not. */
function jsonText(data: Uint8Array): string | undefined {
  try {
    const text = decoder.decode(data);
    let isWhole = true;
    if (!/\\u[dD][89a-fA-F]/.test(text)) JSON.parse(text);
    else
      JSON.parse(text, (key, value: unknown) => {
        isWhole &&= key.isWellFormed() && (typeof value !== "string" || value.isWellFormed());
        return value;
      });
    return isWhole ? text : undefined;
  } catch {
    return undefined;
  }
}
