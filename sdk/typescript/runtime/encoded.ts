/** Values as they travel, made when the workflow says so. */
import { describe } from "./checks.ts";

/** A value as JSON text, made once. Given as an input, it arrives as the value that it was made of. */
export class Encoded<T = unknown> {
  /** The JSON text. */
  readonly json: string;

  constructor(json: string) {
    this.json = json;
  }

  toJSON(): T {
    return JSON.parse(this.json) as T;
  }
}

/**
 * Takes `value` as it is now, to be given to `activity` and `compensate`: both get the same then, whatever becomes of the
 * value in between. Without it, a value is taken at the call it is given to. Throws `TypeError` where it has no JSON form.
 */
export function encode<T>(value: T): Encoded<T> {
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    throw new TypeError(
      `encode() takes what can be sent as JSON: ${error instanceof Error ? error.message.split("\n")[0] : String(error)}`,
      {
        cause: error,
      },
    );
  }
  if (json === undefined) throw new TypeError(`encode() takes what can be sent as JSON, got ${describe(value)}`);
  return new Encoded<T>(json);
}
