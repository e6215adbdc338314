/** The realm's own versions, held against the engine's. */
import { expect, test } from "bun:test";
import { AbortController, AbortSignal, Event, EventTarget } from "./abort.ts";
import { structuredClone } from "./clone.ts";
import { atob, btoa, TextDecoder, TextEncoder } from "./text.ts";

const native = { TextDecoder: globalThis.TextDecoder, TextEncoder: globalThis.TextEncoder, atob: globalThis.atob, btoa: globalThis.btoa };

/** Bytes that favour what UTF-8 gives a meaning to. */
function hostileBytes(seed: number, length: number): Uint8Array {
  let state = seed;
  const draw = (below: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
  const edges = [0, 0x41, 0x7f, 0x80, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xbb, 0xf0, 0x90, 0xf4, 0x8f, 0xf5, 0xff, 0xa0, 0x9f];
  return Uint8Array.from({ length }, () => (draw(4) === 0 ? draw(256) : edges[draw(edges.length)]!));
}

test("TextDecoder reads any bytes as the engine's does, whole and in parts", () => {
  for (let seed = 1; seed <= 3000; seed++) {
    const bytes = hostileBytes(seed, 1 + (seed % 12));
    const want = new native.TextDecoder().decode(bytes);
    expect(new TextDecoder().decode(bytes)).toBe(want);
    const [own, engine] = [new TextDecoder(), new native.TextDecoder()];
    const cut = seed % bytes.length;
    const parts = (decoder: { decode(bytes?: Uint8Array, options?: { stream: boolean }): string }) =>
      decoder.decode(bytes.slice(0, cut), { stream: true }) + decoder.decode(bytes.slice(cut), { stream: true }) + decoder.decode();
    expect(parts(own)).toBe(parts(engine));
    const fails = (read: () => string) => {
      try {
        return read();
      } catch (error) {
        return (error as Error).name;
      }
    };
    const strict = { fatal: true, ignoreBOM: true };
    expect(fails(() => new TextDecoder("utf8", strict).decode(bytes))).toBe(
      fails(() => new native.TextDecoder("utf8", strict).decode(bytes)),
    );
  }
});

test("TextEncoder writes any text as the engine's does", () => {
  const texts = ["", "abc", "é€😀", "\ud800", "a\udfffb", "\ud83d\ude00".repeat(5000), "\u07ff\u0800\uffff\u{10000}\u{10ffff}", "\0"];
  for (const text of texts) {
    expect([...new TextEncoder().encode(text)]).toEqual([...new native.TextEncoder().encode(text)]);
    for (const room of [0, 1, 2, 3, 4, 5, 7]) {
      const [own, engine] = [new Uint8Array(room), new Uint8Array(room)];
      expect(new TextEncoder().encodeInto(text, own)).toEqual(new native.TextEncoder().encodeInto(text, engine));
      expect(own).toEqual(engine);
    }
  }
});

test("atob and btoa agree with the engine's", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const text = String.fromCharCode(...hostileBytes(seed, seed % 20));
    expect(btoa(text)).toBe(native.btoa(text));
    expect(atob(btoa(text))).toBe(text);
  }
  for (const text of ["", " YQ = = ", "YQ", "YWI", "YWJj\n"]) expect(atob(text)).toBe(native.atob(text));
  for (const text of ["Y", "YQ=", "=", "====", "YQ==YQ==", "Y!==", "é"]) expect(() => atob(text)).toThrow();
  expect(() => btoa("€")).toThrow();
});

test("structuredClone copies what can be copied, cycles and all", () => {
  const shared = { x: 1 };
  const value: Record<string, unknown> = {
    list: [1, "a", null, undefined, 5n],
    map: new Map<unknown, unknown>([[shared, shared]]),
    set: new Set([shared]),
    date: new Date(5),
    pattern: /a/gi,
    bytes: new Uint8Array([1, 2, 3]).subarray(1),
    error: new TypeError("t", { cause: shared }),
    boxed: Object("s"),
    nested: { shared },
  };
  value.self = value;
  const copy = structuredClone(value) as typeof value & { map: Map<object, object>; nested: { shared: object }; error: TypeError };
  expect(copy as object).toEqual(value);
  expect(copy.self).toBe(copy);
  expect([...copy.map][0]![0]).toBe(copy.nested.shared);
  expect(copy.nested.shared).not.toBe(shared);
  expect(copy.error).toBeInstanceOf(TypeError);
  for (const bad of [() => 1, Symbol("s"), { f() {} }, Promise.resolve(), new WeakMap()])
    expect(() => structuredClone(bad)).toThrow(TypeError);
});

test("an abort is heard once, by all, with its reason", () => {
  const heard: unknown[] = [];
  const controller = new AbortController();
  controller.signal.onabort = () => heard.push("on");
  controller.signal.addEventListener("abort", ({ target }) => heard.push(target === controller.signal), { once: true });
  const any = AbortSignal.any([new AbortController().signal, controller.signal]);
  controller.signal.throwIfAborted();
  controller.abort("enough");
  controller.abort("again");
  expect(heard).toEqual(["on", true]);
  expect([any.aborted, any.reason]).toEqual([true, "enough"]);
  expect(() => controller.signal.throwIfAborted()).toThrow("enough");
  expect((AbortSignal.abort().reason as Error).name).toBe("AbortError");
});

test("listeners of an event can be removed, also by a signal", () => {
  const target = new EventTarget();
  const heard: string[] = [];
  const listener = () => heard.push("a");
  const controller = new AbortController();
  target.addEventListener("x", listener);
  target.addEventListener("x", listener);
  target.addEventListener("x", { handleEvent: ({ type }) => heard.push(type) }, { signal: controller.signal });
  target.dispatchEvent(new Event("x"));
  controller.abort();
  target.removeEventListener("x", listener);
  target.dispatchEvent(new Event("x"));
  expect(heard).toEqual(["a", "x"]);
});
