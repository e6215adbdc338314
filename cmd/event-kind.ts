/** How the events of one kind are read and shown. */
import { type Decode, fromBytes } from "#proto";

export interface Kind {
  readonly name: string;
  readonly decode: Decode<object>;
  readonly describe: (payload: Uint8Array) => { readonly message: object; readonly summary: string };
}

export function kind<T extends object>(name: string, decode: Decode<T>, summary: (message: T) => string): Kind {
  return {
    name,
    decode,
    describe: (payload) => {
      const message = fromBytes(decode, payload);
      return { message, summary: summary(message) };
    },
  };
}

/** Parts of a summary; those that say nothing are left out. */
export const words = (...parts: (string | false)[]) => parts.filter((part) => part !== false && part !== "").join(" ");
