/** An output stream that keeps what was written, for tests. */
import type { Sink } from "./terminal.ts";

export interface BufferSink extends Sink {
  text(): string;
}

export function bufferSink(terminal?: { readonly columns?: number }): BufferSink {
  let written = "";
  return {
    write: (text) => {
      written += text;
    },
    isTty: terminal !== undefined,
    columns: terminal?.columns,
    text: () => written,
  };
}
