/** What libraries expect of a JavaScript environment beyond the language, as far as it is a pure function of its input. */
import URL from "core-js-pure/actual/url/index.js";
import URLSearchParams from "core-js-pure/actual/url-search-params/index.js";
import { AbortController, AbortSignal, Event, EventTarget } from "./abort.ts";
import { structuredClone } from "./clone.ts";
import { atob, btoa, TextDecoder, TextEncoder } from "./text.ts";

const provided = {
  AbortController,
  AbortSignal,
  Event,
  EventTarget,
  TextDecoder,
  TextEncoder,
  URL,
  URLSearchParams,
  atob,
  btoa,
  structuredClone,
};

export function provideWeb(realm: typeof globalThis): void {
  for (const [name, value] of Object.entries(provided)) {
    Object.defineProperty(realm, name, { value, writable: true, configurable: true, enumerable: false });
  }
  // The store of the library that brings URL: it keeps it itself.
  delete (realm as unknown as Record<string, unknown>)["__core-js_shared__"];
}
