/** Payloads: JSON text, with the empty text for `undefined`. */
import { PayloadTooLargeError } from "#sdk/runtime";
import { utf8Bytes } from "#sdk/runtime/checks";

const payloadBytesMax = 32 * 1024 * 1024;

/** JSON of `value`. `what` names it in errors: `TypeError` for what has no JSON form, `PayloadTooLargeError`. */
export function toJson(value: unknown, what: string): string {
  if (value === undefined) return "";
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new TypeError(`${what} can't be sent as JSON: ${error instanceof Error ? error.message.split("\n")[0] : String(error)}`, {
      cause: error,
    });
  }
  if (text === undefined) throw new TypeError(`${what} can't be sent as JSON: it is a ${typeof value}`);
  if (text.length > payloadBytesMax / 3 && utf8Bytes(text) > payloadBytesMax) {
    throw new PayloadTooLargeError(
      `${what} has ${utf8Bytes(text)} bytes, at most ${payloadBytesMax} are allowed: keep the data in a store and pass its name`,
    );
  }
  return text;
}

export function fromJson(text: string, what: string): unknown {
  if (text === "") return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TypeError(`${what} is not JSON`, { cause: error });
  }
}
