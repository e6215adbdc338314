/** Everything that could differ between two executions: bound to the run, or absent with a reason. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { CommandKind } from "#proto";
import { decode, type SuiteBench, SuiteRun } from "../suite-run-fixture.ts";
import { openHost, TestBundles } from "./v8-fixture.ts";

const bundles = new TestBundles();
let bench: SuiteBench;

beforeAll(async () => {
  const bundle = await bundles.ofText({
    "wf.ts": `
      import { activity, durable, log, now, query, sleep, uuid } from "@hopskip/runtime";
      export const evaluate = durable(async (code: string) => {
        const body = new Function("sleep", "activity", "require", "return (async () => {" + code + "})()");
        return body(sleep, activity, undefined);
      });
      export const attempt = durable(async (code: string) => {
        try { return { value: String(await new Function("return (async () => {" + code + "})()")()) }; }
        catch (error) { return { name: (error as Error).name, message: (error as Error).message }; }
      });
      const loadedAt = Date.now(), loadedRandom = Math.random();
      export const moduleLevel = durable(async () => { await sleep(1); return [loadedAt, now(), typeof loadedRandom]; });
      export const logs = durable(async () => { log.info("one", { a: 1 }); console.warn("two", new Error("bad").message); await sleep(1); log.debug("three"); });
      export const asks = durable(async () => { query("random", () => Math.random()); query("uuid", () => uuid()); query("time", () => Date.now()); query("clear", () => clearTimeout(1)); await sleep(1); return Math.random(); });
    `,
  });
  bench = { host: openHost({}, bundles), bundle };
}, 60_000);
afterAll(() => bench.host.close());

const startMs = Date.UTC(2026, 1, 3, 4, 5, 6, 7);

async function evaluate(code: string, seed = 1, type = "evaluate"): Promise<unknown> {
  const run = new SuiteRun(bench, type, { seed, name: "ns:same" });
  const commands = await run.deliver({ kind: "start", nowMs: startMs, input: new TextEncoder().encode(JSON.stringify(code)) });
  run.drop();
  const [last] = commands.slice(-1);
  if (last?.kind === CommandKind.fail) throw new Error(`${last.failure?.type}: ${last.failure?.message}`);
  expect(last?.kind).toBe(CommandKind.complete);
  return decode(last?.payload?.data);
}

test("the clock is the run's", async () => {
  expect(
    await evaluate(
      "return [Date.now(), new Date().getTime(), Date(), new Date().toISOString(), performance.now(), performance.timeOrigin]",
    ),
  ).toEqual([startMs, startMs, "Tue Feb 03 2026 04:05:06 GMT+0000 (Coordinated Universal Time)", "2026-02-03T04:05:06.007Z", 0, startMs]);
});

test("Date keeps its form", async () => {
  const code = `
    class Day extends Date { get label() { return this.toISOString().slice(0, 10); } }
    return [new Date(0).toISOString(), new Date(2026, 0, 31, 12).toISOString(), Date.UTC(2000, 1), Date.parse("2020-02-02"), new Day(0).label,
      new Day() instanceof Date, Date.length, Date.name, new Date().constructor === Date, Object.prototype.toString.call(new Date()), new Date(NaN).getTime()]`;
  expect(await evaluate(code)).toEqual([
    "1970-01-01T00:00:00.000Z",
    "2026-01-31T12:00:00.000Z",
    949363200000,
    1580601600000,
    "1970-01-01",
    true,
    7,
    "Date",
    true,
    "[object Date]",
    null,
  ]);
});

test("the zone is UTC and the locale en-US, whatever the machine's", async () => {
  const code = `
    const d = new Date(86400000 * 200);
    return [d.getTimezoneOffset(), Intl.DateTimeFormat().resolvedOptions().timeZone, Intl.NumberFormat().resolvedOptions().locale, d.toLocaleString(),
      (1234.5).toLocaleString(), new Intl.DateTimeFormat().format(), new Intl.DateTimeFormat("de", { dateStyle: "long", timeZone: "Asia/Tokyo" }).format(d),
      new Intl.NumberFormat("de").format(1234.5), ["b", "a", "ä"].sort(new Intl.Collator("de").compare).join(), new Intl.PluralRules("en", { type: "ordinal" }).select(2),
      new Intl.ListFormat("en").format(["a", "b"]), new Intl.RelativeTimeFormat("en").format(-1, "day"), [...new Intl.Segmenter("en").segment("ab")].length]`;
  expect(await evaluate(code)).toEqual([
    0,
    "UTC",
    "en-US",
    "7/20/1970, 12:00:00 AM",
    "1,234.5",
    "2/3/2026",
    "20. Juli 1970",
    "1.234,5",
    "a,ä,b",
    "two",
    "a and b",
    "1 day ago",
    2,
  ]);
});

test("an Intl object keeps its form", async () => {
  const code = `
    const f = new Intl.NumberFormat("en-US", { style: "currency", currency: "EUR" });
    const { format } = f;
    return [f instanceof Intl.NumberFormat, format(2), [1, 2].map(f.format).join(), f.formatToParts(1)[0].type, Intl.NumberFormat.supportedLocalesOf(["de"]).join(),
      Object.prototype.toString.call(f), (() => { try { return Intl.PluralRules("en"); } catch (e) { return e.name; } })(),
      (() => { try { return new Intl.NumberFormat("en", { style: "nonsense" }); } catch (e) { return e.name; } })()]`;
  expect(await evaluate(code)).toEqual([
    true,
    "€2.00",
    "€1.00,€2.00",
    "currency",
    "de",
    "[object Intl.NumberFormat]",
    "TypeError",
    "RangeError",
  ]);
});

test("randomness repeats with the seed and differs without", async () => {
  const code = `
    const bytes = crypto.getRandomValues(new Uint8Array(20)), words = crypto.getRandomValues(new Uint32Array(3));
    return [Math.random(), Math.random(), crypto.randomUUID(), [...bytes], [...words]]`;
  const [first, second, other] = [await evaluate(code), await evaluate(code), await evaluate(code, 2)] as [unknown[], unknown[], unknown[]];
  expect(second).toEqual(first);
  for (const [i, value] of first.entries()) expect(other[i]).not.toEqual(value);
});

test("random numbers are spread evenly", async () => {
  const counts = (await evaluate(
    "const c = new Array(10).fill(0); for (let i = 0; i < 10000; i++) c[Math.floor(Math.random() * 10)]++; return c",
  )) as number[];
  for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(120);
});

test("weak references never let go", async () => {
  const code = `
    const ref = new WeakRef({ a: 1 });
    for (let i = 0; i < 200; i++) new Array(100000).fill(i);
    return [ref.deref().a, Object.prototype.toString.call(ref)]`;
  expect(await evaluate(code)).toEqual([1, "[object WeakRef]"]);
});

const absent = [
  ["fetch", 'await fetch("http://x")', "activity"],
  ["XMLHttpRequest", "new XMLHttpRequest()", "activity"],
  ["WebSocket", 'new WebSocket("ws://x")', "activity"],
  ["EventSource", 'new EventSource("http://x")', "activity"],
  ["Worker", 'new Worker("x")', "activity"],
  ["require", 'globalThis.require("fs")', "import"],
  ["setImmediate", "setImmediate(() => {})", "queueMicrotask"],
  ["MessageChannel", "new MessageChannel()", "signal"],
  ["process", "return process.env.HOME", "input"],
  ["process", "return globalThis.process", "input"],
  ["Buffer", 'return Buffer.from("x")', "Uint8Array"],
  ["Bun", 'return Bun.file("x")', "activity"],
  ["Deno", "return Deno.args", "activity"],
  ["navigator", "return navigator.userAgent", "activity"],
  ["localStorage", "return localStorage.x", "variables"],
  ["indexedDB", "return indexedDB.open", "activity"],
  ["SharedArrayBuffer", "new SharedArrayBuffer(8)", "ArrayBuffer"],
  ["Atomics", "return Atomics.load", "variables"],
  ["FinalizationRegistry", "new FinalizationRegistry(() => {})", "finally"],
  ["WebAssembly", "return WebAssembly.compile", "activity"],
  ["crypto.subtle", "return crypto.subtle.digest", "activity"],
] as const;

test.each(absent)("%s is absent: %s", async (name, code, wayOut) => {
  const outcome = (await evaluate(code, 1, "attempt")) as { name: string; message: string };
  expect(outcome.name).toBe("DeterminismError");
  expect(outcome.message).toStartWith(`${name} does not exist in a workflow: `);
  expect(outcome.message).toContain(wayOut);
});

test("what this realm has is a known list", async () => {
  const names = (await evaluate("return Object.getOwnPropertyNames(Object.getPrototypeOf(Object.create(globalThis))).sort()")) as string[];
  expect(names).toMatchInlineSnapshot(`
    [
      "AbortController",
      "AbortSignal",
      "AggregateError",
      "Array",
      "ArrayBuffer",
      "Atomics",
      "BigInt",
      "BigInt64Array",
      "BigUint64Array",
      "Boolean",
      "BroadcastChannel",
      "Buffer",
      "Bun",
      "DataView",
      "Date",
      "Deno",
      "Error",
      "EvalError",
      "Event",
      "EventSource",
      "EventTarget",
      "FinalizationRegistry",
      "Float32Array",
      "Float64Array",
      "Function",
      "Infinity",
      "Int16Array",
      "Int32Array",
      "Int8Array",
      "Intl",
      "Iterator",
      "JSON",
      "Map",
      "Math",
      "MessageChannel",
      "NaN",
      "Number",
      "Object",
      "Promise",
      "Proxy",
      "RangeError",
      "ReferenceError",
      "Reflect",
      "RegExp",
      "Set",
      "SharedArrayBuffer",
      "String",
      "Symbol",
      "SyntaxError",
      "TextDecoder",
      "TextEncoder",
      "TypeError",
      "URIError",
      "URL",
      "URLSearchParams",
      "Uint16Array",
      "Uint32Array",
      "Uint8Array",
      "Uint8ClampedArray",
      "WeakMap",
      "WeakRef",
      "WeakSet",
      "WebAssembly",
      "WebSocket",
      "Worker",
      "XMLHttpRequest",
      "atob",
      "btoa",
      "caches",
      "clearImmediate",
      "clearInterval",
      "clearTimeout",
      "console",
      "crypto",
      "decodeURI",
      "decodeURIComponent",
      "encodeURI",
      "encodeURIComponent",
      "escape",
      "eval",
      "fetch",
      "globalThis",
      "importScripts",
      "indexedDB",
      "isFinite",
      "isNaN",
      "localStorage",
      "navigator",
      "parseFloat",
      "parseInt",
      "performance",
      "process",
      "queueMicrotask",
      "requestAnimationFrame",
      "require",
      "sessionStorage",
      "setImmediate",
      "setInterval",
      "setTimeout",
      "structuredClone",
      "undefined",
      "unescape",
    ]
  `);
});

test("module level code of a workflow has its run's clock and seed", async () => {
  const run = new SuiteRun(bench, "moduleLevel");
  await run.deliver({ kind: "start", nowMs: startMs, input: new Uint8Array() });
  const [command] = await run.deliver({ kind: "resolve", nowMs: startMs + 9, op: 1, value: new Uint8Array() });
  expect(decode(command?.payload?.data)).toEqual([startMs, startMs + 9, "number"]);
});

test("timers are durable timers", async () => {
  const code = `
    const seen = [];
    const cancelled = setTimeout(() => seen.push("never"), 50);
    setTimeout((x) => seen.push(x), 10, "a");
    clearTimeout(cancelled);
    const interval = setInterval(() => { seen.push("tick"); if (seen.length > 2) clearInterval(interval); }, 5);
    await sleep(100);
    return seen`;
  const run = new SuiteRun(bench, "evaluate");
  const note = (commands: Awaited<ReturnType<SuiteRun["deliver"]>>) => commands.map(({ kind, op, durationMs }) => [kind, op, durationMs]);
  const { timer, cancelOp } = CommandKind;
  expect(note(await run.start(code))).toEqual([
    [timer, 1, 50],
    [timer, 2, 10],
    [cancelOp, 1, undefined],
    [timer, 3, 5],
    [timer, 4, 100],
  ]);
  expect(note(await run.deliver(run.resolved(3)))).toEqual([[timer, 5, 5]]);
  expect(note(await run.deliver(run.resolved(5)))).toEqual([[timer, 6, 5]]);
  expect(await run.deliver(run.resolved(2))).toEqual([]);
  expect(note(await run.deliver(run.resolved(6)))).toEqual([
    [timer, 7, 5],
    [cancelOp, 7, undefined],
  ]);
  const [command] = await run.deliver(run.resolved(4));
  expect(decode(command?.payload?.data)).toEqual(["tick", "tick", "a", "tick"]);
});

test("an error in a timer's callback fails the run", async () => {
  const run = new SuiteRun(bench, "evaluate");
  await run.start("setTimeout(() => { throw new RangeError('late') }, 1); await sleep(10)");
  const [command] = await run.deliver(run.resolved(1));
  expect(command).toMatchObject({ kind: CommandKind.fail, failure: { type: "RangeError", message: "late" } });
});

test("sleep takes what is a duration and refuses the rest at the call", async () => {
  const timerOf = async (argument: string) => {
    const run = new SuiteRun(bench, "evaluate");
    const [command] = await run.deliver({
      kind: "start",
      nowMs: startMs,
      input: new TextEncoder().encode(JSON.stringify(`await sleep(${argument})`)),
    });
    return command?.kind === CommandKind.timer ? (command.durationMs ?? 0) : command?.failure?.type;
  };
  const year = 365.25 * 86400000;
  const cases: [string, string | number | undefined][] = [
    ["0", 0],
    ["-1", 0],
    ["-1e300", 0],
    ["0.2", 1],
    ["2147483647", 2147483647],
    ["2147483648", 2147483648],
    ["2147483649", 2147483649],
    ["30 * 86400000", 30 * 86400000],
    [`${year}`, year],
    [`100 * ${year}`, 100 * year],
    [`100 * ${year} + 1`, "RangeError"],
    ["Infinity", "RangeError"],
    ["-Infinity", "RangeError"],
    ["NaN", "TypeError"],
    ['"1000"', "TypeError"],
    ["undefined", "TypeError"],
    ["null", "TypeError"],
    ["10n", "TypeError"],
    ["{ until: new Date(Date.now() + 500) }", 500],
    ["{ until: Date.now() + 1 }", 1],
    ["{ until: new Date(0) }", 0],
    ["{ until: NaN }", "TypeError"],
    ["{ until: new Date(NaN) }", "TypeError"],
    ["{}", "TypeError"],
    ['{ until: "tomorrow" }', "TypeError"],
    ["{ until: Infinity }", "RangeError"],
  ];
  for (const [argument, want] of cases) expect([argument, await timerOf(argument)]).toEqual([argument, want]);
});

test("a query may read the clock but not draw random numbers or act", async () => {
  const run = new SuiteRun(bench, "asks", { seed: 3 });
  await run.start();
  expect(await run.query("time")).toMatchObject({ kind: "ok" });
  for (const name of ["random", "uuid", "clear"]) {
    expect(await run.query(name)).toMatchObject({ kind: "failed", failure: { type: "DeterminismError" } });
  }
  const undisturbed = new SuiteRun(bench, "asks", { seed: 3 });
  await undisturbed.start();
  const [a, b] = [await run.deliver(run.resolved(1)), await undisturbed.deliver(undisturbed.resolved(1))];
  expect(decode(a[0]?.payload?.data)).toEqual(decode(b[0]?.payload?.data));
});

test("log lines and console are written once: not during a replay", async () => {
  const lines: string[] = [];
  const host = openHost({ onLog: ({ run, level, message }) => lines.push(`${run} ${level} ${message}`) }, bundles);
  try {
    const one = { host, bundle: bench.bundle };
    const run = new SuiteRun(one, "logs", { name: "ns:l" });
    await run.start();
    await run.deliver(run.resolved(1));
    expect(lines).toEqual(['ns:l info one {"a":1}', "ns:l warn two bad", "ns:l debug three"]);
    const again = new SuiteRun(one, "logs", { name: "ns:l" });
    await again.deliver({ ...run.history[0]!, replay: true }, run.history[1]!);
    expect(lines.slice(3)).toEqual(["ns:l debug three"]);
  } finally {
    await host.close();
  }
});
