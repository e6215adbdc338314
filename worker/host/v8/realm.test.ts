/** One realm, many runs: none can change what another one sees, and the language works in it. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { CommandKind } from "#proto";
import { brief, decode, encode, type SuiteBench, SuiteRun } from "../suite-run-fixture.ts";
import { features } from "./features-fixture.ts";
import { openHost, TestBundles } from "./v8-fixture.ts";

const bundles = new TestBundles();
let bench: SuiteBench;

beforeAll(async () => {
  const bundle = await bundles.ofText({
    "counter.ts": "let count = 0; export const next = () => ++count; export const box: { value?: unknown } = {};",
    "wf.ts": `
      import * as runtime from "@hopskip/runtime";
      import { activity, durable, sleep, signal } from "@hopskip/runtime";
      import { z } from "zod";
      import { addDays, setDefaultOptions, getDefaultOptions } from "date-fns";
      import { next, box } from "./counter.ts";
      export const evaluate = durable(async (code: string) => {
        const names = { activity, sleep, signal, runtime, z, addDays, setDefaultOptions, getDefaultOptions, next, box };
        return new Function(...Object.keys(names), '"use strict"; return (async () => {' + code + "})()")(...Object.values(names));
      });
      export const chunks = durable(async function* (n: number) { for (let i = 0; i < n; i++) { await sleep(1); yield i; } return "end"; });
      export const inline = durable(async (n: number) => [await chunks(n), typeof chunks]);
      const acts = runtime.activities<{ charge(i: { cents: number }): Promise<string>; ping(): void }>({ startToCloseMs: 7, retry: { attempts: 2 } });
      export const typed = durable(async () => { acts.ping(); return acts.charge({ cents: 5 }, { retry: { attempts: 9 } }); });
      export const sloppy = durable(async (code: string) => new Function(code)());
      export const pauses = durable(async (code: string) => {
        const pause = async (v?: unknown) => (await activity("pause"), v);
        const pauseRej = async () => { await activity("pause"); throw new Error("rej"); };
        return new Function("pause", "pauseRej", "return (async () => {" + code + "})()")(pause, pauseRej);
      });
    `,
  });
  bench = { host: openHost({}, bundles), bundle };
}, 60_000);
afterAll(() => bench.host.close());

async function evaluate(code: string, type = "evaluate"): Promise<unknown> {
  const run = new SuiteRun(bench, type, { name: "ns:x" });
  const [command] = await run.start(code);
  run.drop();
  return command?.kind === CommandKind.fail ? `${command.failure?.type}: ${command.failure?.message}` : decode(command?.payload?.data);
}

/** Ways to reach into what is shared; each must throw or have no effect that the probe can see. */
const poison: readonly [code: string, probe: string][] = [
  ["Object.prototype.leak = 1", "return typeof {}.leak"],
  ["Array.prototype.map = () => 'poison'", "return String([1].map((x) => x))"],
  ["Array.prototype[0] = 'poison'", "return String([,][0])"],
  ["Object.defineProperty(Object.prototype, 'leak', { value: 1 })", "return typeof {}.leak"],
  ["Object.setPrototypeOf(Array.prototype, { leak: 1 })", "return typeof [].leak"],
  ["Object.prototype.__proto__ = { leak: 1 }", "return typeof {}.leak"],
  ["JSON.stringify = () => 'poison'", "return JSON.stringify(1)"],
  ["Math.random = () => 'poison'", "return typeof Math.random()"],
  ["Date.now = () => 'poison'", "return typeof Date.now()"],
  ["Date.prototype.toISOString = () => 'poison'", "return new Date(0).toISOString().length"],
  ["Promise.prototype.then = () => 'poison'", "return await Promise.resolve(1)"],
  ["Promise.all = () => 'poison'", "return String(await Promise.all([1]))"],
  ["(async () => {}).constructor.prototype.leak = 1", "return typeof (async () => {}).leak"],
  ["(function* () {}).prototype.__proto__.leak = 1", "return typeof (function* () {})().leak"],
  ["[].values().__proto__.next = () => 'poison'", "return String([...[1].values()])"],
  ["new Map().keys().__proto__.leak = 1", "return typeof new Map().keys().leak"],
  ["''.matchAll(/x/g).__proto__.leak = 1", "return typeof ''.matchAll(/x/g).leak"],
  ["[].values().map((x) => x).__proto__.leak = 1", "return typeof [].values().map((x) => x).leak"],
  ["Function.prototype.call = () => 'poison'", "return Math.max.call(null, 1, 2)"],
  ["Error.prototype.message = 'poison'", "return new Error().message"],
  ["Error.prepareStackTrace = () => 'poison'", "return String(new Error().stack).includes('poison')"],
  ["Error.stackTraceLimit = 0", "return new Error().stack.includes('at ')"],
  ["Error.captureStackTrace = () => {}", "const o = {}; Error.captureStackTrace(o); return typeof o.stack"],
  ["/(pois)on/.exec('poison')", "return [RegExp.$1, RegExp.input, RegExp.lastMatch].map((v) => typeof v).join()"],
  ["RegExp.prototype.exec = () => 'poison'", "return String(/a/.exec('a'))"],
  ["console.log = 'poison'", "return typeof console.log"],
  ["crypto.randomUUID = () => 'poison'", "return crypto.randomUUID().length"],
  ["performance.now = () => 'poison'", "return performance.now()"],
  ["Intl.NumberFormat = 'poison'", "return typeof Intl.NumberFormat"],
  ["Intl.NumberFormat.prototype.formatToParts = () => 'poison'", "return new Intl.NumberFormat().formatToParts(1).length"],
  ["setTimeout = 'poison'", "return typeof setTimeout"],
  ["globalThis.leak = 1", "return typeof globalThis.leak"],
  ["(0, eval)('this').leak = 1", "return typeof (0, eval)('this').leak"],
  ["(0, eval)('var leak = 1')", "return typeof leak"],
  ["new Function('return this')().leak = 1", "return typeof new Function('return this')().leak"],
  ["(0, eval)('leak2 = 1')", "return typeof (0, eval)('typeof leak2')"],
  ["globalThis.__proto__.leak = 1", "return typeof globalThis.leak"],
  ["Symbol.leak = 1", "return typeof Symbol.leak"],
  ["runtime.sleep = 'poison'", "return typeof runtime.sleep"],
  ["runtime.CancelledError.prototype.leak = 1", "return typeof new runtime.CancelledError().leak"],
  ["runtime.ActivityError.leak = 1", "return typeof runtime.ActivityError.leak"],
  ["runtime.log.info = 'poison'", "return typeof runtime.log.info"],
  ["z.string = () => 'poison'", "return typeof z.string().parse"],
  ["setDefaultOptions({ weekStartsOn: 3 })", "return String(getDefaultOptions().weekStartsOn)"],
  ["next(); next()", "return next()"],
  ["box.value = 'poison'", "return typeof box.value"],
];

describe("a run that reaches into the realm changes nothing for the next one", () => {
  for (const [code, probe] of poison) {
    test(code, async () => {
      const before = await evaluate(probe);
      await evaluate(code);
      await evaluate(code, "sloppy");
      expect(await evaluate(probe)).toEqual(before);
    });
  }
});

test("what a run leaves on its own global object is its own, over its awaits", async () => {
  const code = "const g = runtime; const own = box; own.value = 1; await sleep(1); return own.value";
  const [a, b] = [new SuiteRun(bench, "evaluate"), new SuiteRun(bench, "evaluate")];
  await Promise.all([a.start(code), b.start("await sleep(1); return typeof box.value")]);
  expect(decode((await a.deliver(a.resolved(1)))[0]?.payload?.data)).toBe(1);
  expect(decode((await b.deliver(b.resolved(1)))[0]?.payload?.data)).toBe("undefined");
});

test("objects may have properties that a frozen prototype has too", async () => {
  const code = `
    class Own extends Error { constructor(m) { super(m); this.name = "Own"; } }
    function Old() {} Old.prototype = Object.create(Error.prototype); Old.prototype.constructor = Old; Old.prototype.toString = () => "old";
    const o = {}; o.toString = () => "mine"; o.constructor = 1; o.hasOwnProperty = 2;
    const e = new Error("a"); e.message = "b";
    return [new Own("x").name, String(new Own("x")), String(new Old()), String(o), o.constructor, Object.keys(o).join(), e.message, Object.keys(e).length]`;
  expect(await evaluate(code)).toEqual(["Own", "Own: x", "old", "mine", 1, "toString,constructor,hasOwnProperty", "b", 0]);
});

test("the host's entry points are out of reach", async () => {
  const code = `
    const seen = new Set(), open = [globalThis, runtime, z], found = [];
    while (open.length) {
      const value = open.pop();
      if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) continue;
      seen.add(value);
      for (const key of Reflect.ownKeys(value)) {
        if (["deliver", "collect", "boot"].includes(String(key))) found.push(key);
        const d = Reflect.getOwnPropertyDescriptor(value, key);
        open.push(d.value, d.get, d.set);
      }
      open.push(Object.getPrototypeOf(value));
    }
    return [found, seen.size > 1000]`;
  expect(await evaluate(code)).toEqual([[], true]);
});

describe("the language works across awaits", () => {
  for (const [name, code, want] of features) {
    test(name, async () => {
      const run = new SuiteRun(bench, "pauses");
      let commands = await run.start(code);
      for (let op = 1; commands.at(-1)?.kind === CommandKind.activity && op < 300; op++) {
        const open = commands.filter(({ kind }) => kind === CommandKind.activity).map((command) => command.op!);
        commands = [];
        for (const each of open) commands.push(...(await run.deliver(run.resolved(each))));
      }
      expect(brief(commands.at(-1)!)).toEqual(["complete", want]);
    });
  }
});

test("hostile text passes through unchanged: as payload, as name, as message", async () => {
  const texts = [
    "",
    " ",
    "\u0000",
    "\u001f\u001e",
    "undefined",
    "null",
    "NaN",
    "__proto__",
    "constructor",
    "\\",
    '"',
    "'",
    "`$\u007bx}`",
    "../../etc/passwd",
    "<script>",
    "ÅÍÎÏ˝ÓÔÒÚÆ☃",
    "田中さん",
    "ﷺ",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\u202e\u200b\ufeff",
    "\ud800",
    "a\udfff",
    "‮test",
    "Ω≈ç√∫˜µ",
    "\u2028\u2029",
    "%00",
    "$\u007bjndi:ldap://x}",
    "x".repeat(5000),
  ];
  const run = new SuiteRun(bench, "evaluate");
  const [command] = await run.start("const v = await activity('ünïcødé \"name\"', await signal('s')); throw new Error(v)");
  expect(command?.kind).toBe(CommandKind.awaitSignal);
  const raw = encode(texts);
  const [activity] = await run.deliver({ kind: "signal", nowMs: 1, name: "s", value: raw });
  expect(activity?.name).toBe('ünïcødé "name"');
  expect(Buffer.from(activity!.payload!.data!).equals(Buffer.from(raw))).toBe(true);
  for (const text of texts) {
    const one = new SuiteRun(bench, "evaluate");
    await one.start("throw new Error(await activity('a'))");
    const [failed] = await one.deliver(one.resolved(1, text));
    expect(failed?.failure?.message).toBe(text.length > 5000 ? text : text.toWellFormed());
  }
});

test("a name that can't be one is refused at the call", async () => {
  for (const name of ["''", "'a\\nb'", "'\\u0000'", "'\\ud800'", "'x'.repeat(256)", "'é'.repeat(128)", "1", "undefined", "{}"]) {
    for (const call of [`activity(${name})`, `signal(${name})`, `runtime.query(${name}, () => 1)`]) {
      expect([call, await evaluate(`await ${call}`)]).toEqual([call, expect.stringMatching(/^TypeError: (Activity|Signal|Query) name /)]);
    }
  }
  expect(await evaluate("activity('é'.repeat(127)); return 1")).toBeUndefined();
});

test("what has no JSON form is refused at the call, by name", async () => {
  expect(await evaluate("await activity('charge', 1n)")).toMatch(/^TypeError: Input of activity "charge" can't be sent as JSON: .*BigInt/);
  expect(await evaluate("const a = {}; a.a = a; await activity('charge', a)")).toMatch(
    /^TypeError: Input of activity "charge" can't be sent as JSON: .*circular/,
  );
  expect(await evaluate("await activity('charge', () => 1)")).toBe(
    'TypeError: Input of activity "charge" can\'t be sent as JSON: it is a function',
  );
  expect(await evaluate("return 5n")).toMatch(/^TypeError: Result of workflow "evaluate" can't be sent as JSON/);
});

test("a payload above the limit is refused at the call and never retried", async () => {
  const run = new SuiteRun(bench, "evaluate");
  const [command] = await run.start("await activity('store', 'x'.repeat(32 * 1024 * 1024))");
  expect(command?.failure).toMatchObject({
    type: "PayloadTooLargeError",
    nonRetryable: true,
    message: expect.stringContaining('activity "store"'),
  });
  const [fits] = await new SuiteRun(bench, "evaluate").start("await activity('store', 'x'.repeat(32 * 1024 * 1024 - 2))");
  expect(fits?.payload?.data?.length).toBe(32 * 1024 * 1024);
}, 30_000);

test("options of an activity are recorded, and wrong ones refused", async () => {
  const run = new SuiteRun(bench, "evaluate");
  const [plain, full] = await run.start(`
    activity("a");
    await activity("b", 1, { retry: { attempts: 5, initialMs: 10, maxMs: 1000, backoff: 1.5, jitter: 0, nonRetryable: ["CardDeclined"] },
      startToCloseMs: 1000, scheduleToCloseMs: 60000, heartbeatMs: 500, idempotencyKey: "k-1" })`);
  expect(plain?.options).toEqual({
    retry: { attemptsMax: 0, initialMs: 100, intervalMsMax: 60_000, backoffMilli: 2000, jitterMilli: 200, nonRetryable: [] },
    startToCloseMs: 0,
    scheduleToCloseMs: 0,
    heartbeatMs: 0,
    idempotencyKey: "",
  });
  expect(full?.options).toEqual({
    retry: { attemptsMax: 5, initialMs: 10, intervalMsMax: 1000, backoffMilli: 1500, jitterMilli: 0, nonRetryable: ["CardDeclined"] },
    startToCloseMs: 1000,
    scheduleToCloseMs: 60_000,
    heartbeatMs: 500,
    idempotencyKey: "k-1",
  });
  for (const options of [
    "{ retries: 3 }",
    "{ retry: { attempts: 0 } }",
    "{ retry: { attempts: 1.5 } }",
    "{ retry: { backoff: 0.5 } }",
    "{ retry: { jitter: 2 } }",
    "{ startToCloseMs: NaN }",
    "{ idempotencyKey: 5 }",
    "{ retry: { nonRetryable: 'X' } }",
    "null",
  ]) {
    expect([options, await evaluate(`await activity("a", 1, ${options})`)]).toEqual([
      options,
      expect.stringMatching(/^(Type|Range)Error: Option/),
    ]);
  }
});

test("what libraries expect of an environment is there", async () => {
  const code = `
    const u = new URL("../b?x=1&y=a%20b#h", "https://user:pw@Example.com:8080/a/c/d");
    u.searchParams.append("z", "é");
    const bytes = new TextEncoder().encode("é");
    const controller = new AbortController();
    let aborted = 0;
    controller.signal.addEventListener("abort", () => aborted++);
    controller.abort();
    let order = [];
    queueMicrotask(() => order.push("micro"));
    order.push("first");
    await null;
    return [u.href, u.host, new URL("http://xn--mnchen-3ya.de/ä").href, [...new URLSearchParams("a=1&a=2").getAll("a")].join(), new TextDecoder().decode(bytes), bytes.length,
      atob(btoa("hi")), structuredClone(new Map([[1, { a: 1 }]])).get(1).a, aborted, order.join(), URL.canParse?.("nope") ?? false]`;
  expect(await evaluate(code)).toEqual([
    "https://user:pw@example.com:8080/a/b?x=1&y=a+b&z=%C3%A9#h",
    "example.com:8080",
    "http://xn--mnchen-3ya.de/%C3%A4",
    "1,2",
    "é",
    2,
    "hi",
    1,
    1,
    "first,micro",
    false,
  ]);
});

test("URLs are read as the engine of the worker reads them", async () => {
  const urls = [
    "http://a/b/../c",
    "HTTP://A:80/",
    "https://a:443",
    "ftp://a:21/x",
    "file:///C:/x/../y",
    "mailto:a@b",
    "data:text/plain,x y",
    "http://1.2.3",
    "http://0x7f.1/",
    "http://[::1]:3/",
    "http://a b/",
    "http://a/ b?c d#e f",
    "//a/b",
    "/x",
    "",
    "http://",
    "http://user@/x",
    "javascript:alert(1)",
    "http://ex%41mple.com",
    "http://a/\\b",
    "blob:http://a/1",
    "x:y",
    "http://a?b",
    "http://a#",
  ];
  const read = (text: string) => {
    try {
      const { href, origin, pathname } = new URL(text, "http://base.example/dir/file");
      return [href, origin, pathname];
    } catch (error) {
      return (error as Error).name;
    }
  };
  const own = await evaluate(`const read = ${read.toString()}; return ${JSON.stringify(urls)}.map(read)`);
  expect(own).toEqual(urls.map(read));
});

test("zod reads URLs, and its errors are made in a frozen realm", async () => {
  expect(
    await evaluate(
      "return [z.url().safeParse('https://a.b/c').success, z.url().safeParse('nope').success, z.iso.datetime().safeParse('2020-01-01T00:00:00Z').success]",
    ),
  ).toEqual([true, false, true]);
  expect(
    await evaluate("return z.object({ a: z.string().min(2), b: z.array(z.number()).optional() }).safeParse({ a: '' }).error.issues.length"),
  ).toBe(1);
});

test("a generator's last chunk can be read, and its return value is the result", async () => {
  const run = new SuiteRun(bench, "chunks");
  await run.start(2);
  expect(await run.query("yielded")).toMatchObject({ kind: "ok", value: encode(undefined) });
  await run.deliver(run.resolved(1));
  expect(await run.query("yielded")).toMatchObject({ kind: "ok", value: encode(0) });
  expect((await run.deliver(run.resolved(2))).map(brief)).toEqual([["complete", "end"]]);
  const inline = new SuiteRun(bench, "inline");
  await inline.start(1);
  expect((await inline.deliver(inline.resolved(1))).map(brief)).toEqual([["complete", ["end", "function"]]]);
});

test("typed activities carry their defaults, field by field", async () => {
  const [ping, charge] = await new SuiteRun(bench, "typed").start();
  expect(ping).toMatchObject({ name: "ping", options: { startToCloseMs: 7, retry: { attemptsMax: 2 } } });
  expect(ping?.payload?.data).toHaveLength(0);
  expect(charge).toMatchObject({ name: "charge", options: { startToCloseMs: 7, retry: { attemptsMax: 9 } } });
});

test("a run that has ended asks for nothing more", async () => {
  const code = `
    (async () => { for (let i = 0; i < 20; i++) await null; activity("late"); setTimeout(() => {}, 1); await signal("late"); })();
    activity("open");
    return 1`;
  const run = new SuiteRun(bench, "evaluate");
  expect((await run.start(code)).map(brief)).toEqual([
    ["activity", 1, "open", undefined],
    ["complete", 1],
  ]);
  expect(await run.deliver(run.resolved(1))).toEqual([]);
  expect(await run.deliver(run.cancelled())).toEqual([]);
});

test("too many open operations are refused at the call", async () => {
  const run = new SuiteRun(bench, "evaluate");
  const commands = await run.start("for (let i = 0; i < 10000; i++) sleep(1); await sleep(1)");
  expect(commands).toHaveLength(10_001);
  expect(commands.at(-1)?.failure).toMatchObject({ type: "RangeError", message: expect.stringContaining("10000") });
});
