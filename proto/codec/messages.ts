/** Whole messages to and from bytes of their own. The hot paths encode in place instead. */
import { Reader } from "./reader.ts";
import { Writer } from "./writer.ts";

export type Encode<T> = (writer: Writer, message: T) => void;
export type Decode<T> = (reader: Reader, end: number) => T;

const scratch = new Writer();

/** The message's bytes, in memory of their own. */
export function toBytes<T>(encode: Encode<T>, message: T): Uint8Array {
  scratch.at = 0;
  encode(scratch, message);
  return scratch.finish();
}

/** Reads a whole message; its byte fields are views into `bytes`. Throws `CodecError`. */
export function fromBytes<T>(decode: Decode<T>, bytes: Uint8Array): T {
  return decode(new Reader(bytes), bytes.length);
}
