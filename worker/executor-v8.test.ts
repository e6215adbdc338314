/** The executor with the real V8 host and bundled workflows: what is live, rebuilt, and diverged. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromHex } from "#core/base";
import {
  type Activate,
  type Activated,
  ActivatedStatus,
  CommandKind,
  decodeWorkerItem,
  encodeWorkerItem,
  fromBytes,
  toBytes,
  type WorkerItem,
} from "#proto";
import { EventLog } from "./abi/event-fixture.ts";
import { bundleWorkflows } from "./bundle/bundler.ts";
import { Executor } from "./executor.ts";
import { V8Host } from "./host/v8/v8-host.ts";

const folder = mkdtempSync(join(tmpdir(), "hop-executor-"));
const code = new Map<string, Uint8Array>();
const logs: string[] = [];
let host: V8Host;

beforeAll(async () => {
  host = new V8Host({
    limits: { deliveryMs: 500 },
    source: async (bundle) => code.get(bundle) as Uint8Array,
    onLog: ({ message }) => logs.push(message),
  });
  await host.start();
});
afterAll(async () => {
  await host.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Bundles a workflow named `order` and gives its hash. */
async function bundled(name: string, body: string): Promise<Uint8Array> {
  const file = join(folder, `${name}.ts`);
  const imports = 'import { activity, durable, log, query, signal, sleep } from "@hopskip/runtime";';
  writeFileSync(file, `${imports}\nexport const order = durable(async (input: { id: number }) => {\n${body}\n});\n`);
  const { bytes, hash } = await bundleWorkflows({ files: [file] });
  code.set(hash, bytes);
  return fromHex(hash) as Uint8Array;
}

const steps = `
  const seen: unknown[] = [];
  query("seen", () => seen);
  log.info("charging");
  seen.push(await activity("charge", input));
  log.info("charged");
  await sleep(1000);
  seen.push(await signal("paid"));
  log.info("paid");
  return seen;`;

let nextKey = 0;

class Rig {
  readonly items: WorkerItem[] = [];
  readonly log = new EventLog();
  readonly executor: Executor;
  private activation = 0;
  private seen = 0;
  private wake: () => void = () => {};

  constructor() {
    this.executor = new Executor({
      host,
      blobs: async () => new Uint8Array(0),
      runSlots: () => 10,
      nextKey: () => ++nextKey,
      send: (item) => {
        this.items.push(fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item)));
        this.wake();
      },
    });
    this.log.started("order", { id: 1 });
  }

  async next(): Promise<WorkerItem> {
    while (this.items.length === 0) {
      await new Promise<void>((done) => {
        this.wake = done;
      });
    }
    return this.items.shift() as WorkerItem;
  }

  async activate(fields: Partial<Activate>): Promise<Activated> {
    const events = fields.fromStart === true ? [...this.log.events] : this.log.events.slice(this.seen);
    this.seen = this.log.events.length;
    const own = {
      shard: 1,
      handle: 1,
      activation: ++this.activation,
      fromStart: false,
      more: false,
      run: "default:r1",
      bundle: new Uint8Array(0),
      type: "order",
      readOnly: false,
    };
    this.executor.activate({ ...own, ...fields, events });
    const item = await this.next();
    if (item.kind !== "activated") throw new Error(`The executor sent ${item.kind}, want activated`);
    return item.value;
  }

  record({ commands }: Activated): void {
    for (const command of commands) this.log.record(command, new Set());
  }

  async query(name: string): Promise<string> {
    this.executor.query({ query: 1, shard: 1, handle: 1, name, input: undefined });
    const item = await this.next();
    if (item.kind !== "queryAnswer") throw new Error(`The executor sent ${item.kind}, want an answer`);
    return item.value.failure?.message ?? Buffer.from(item.value.result?.data ?? []).toString();
  }
}

const kinds = ({ status, problem, commands }: Activated) => [
  status,
  problem,
  ...commands.map(({ kind, op, name }) => `${kind}.${op}.${name}`),
];

test("a run is the same live and rebuilt at each of its events, and writes its log once", async () => {
  const bundle = await bundled("good", steps);
  const rig = new Rig();
  logs.length = 0;
  const expected = [
    `${CommandKind.activity}.1.charge`,
    `${CommandKind.timer}.2.`,
    `${CommandKind.awaitSignal}.3.paid`,
    `${CommandKind.complete}.0.`,
  ];
  const happen = [() => {}, () => rig.log.completed(1, "ok"), () => rig.log.fired(2), () => rig.log.signalled("paid", 9)];
  for (const [i, next] of happen.entries()) {
    next();
    const live = await rig.activate(i === 0 ? { fromStart: true, bundle } : {});
    expect(kinds(live)).toEqual([0, "", expected[i] as string]);
    rig.record(live);
    const rebuilt = await rig.activate({ fromStart: true, bundle });
    expect(kinds(rebuilt)).toEqual([0, ""]);
  }
  expect(logs).toEqual(["charging", "charged", "paid"]);
  expect(await rig.query("seen")).toBe('["ok",9]');
  expect(await rig.query("other")).toContain('no query "other": it declares "seen"');
});

test("code that was changed is found out, and the run goes on with code that agrees", async () => {
  const bundle = await bundled("good", steps);
  const rig = new Rig();
  rig.record(await rig.activate({ fromStart: true, bundle }));
  rig.log.completed(1, "ok");
  rig.record(await rig.activate({}));
  rig.log.fired(2);
  const changes: [string, string, string, string][] = [
    ["swapped", 'await sleep(1000); await activity("charge", input);', 'activity "charge" with input {"id":1}', "a sleep of 1000 ms"],
    [
      "renamed",
      'await activity("bill", input); await sleep(1000);',
      'activity "charge" with input {"id":1}',
      'activity "bill" with input {"id":1}',
    ],
    ["dropped", 'await activity("charge", input); await signal("paid");', "a sleep of 1000 ms", 'a wait for signal "paid"'],
    [
      "added",
      'await activity("charge", input); await activity("log", 1); await sleep(1000);',
      "a sleep of 1000 ms",
      'activity "log" with input 1',
    ],
    [
      "argued",
      'await activity("charge", { id: 2 }); await sleep(1000);',
      'activity "charge" with input {"id":1}',
      'activity "charge" with input {"id":2}',
    ],
    ["ended", 'return await activity("charge", input);', "a sleep of 1000 ms", 'the run\'s end with result "ok"'],
    ["stuck", 'await activity("charge", input); await new Promise(() => {});', "a sleep of 1000 ms", "asked for nothing more"],
    [
      "failed",
      'await activity("charge", input); throw new TypeError("oops");',
      "a sleep of 1000 ms",
      "the run's failure with TypeError: oops",
    ],
  ];
  for (const [name, body, had, asked] of changes) {
    const { status, problem } = await rig.activate({ fromStart: true, bundle: await bundled(name, body) });
    expect([name, status]).toEqual([name, ActivatedStatus.diverged]);
    expect(problem).toContain(`has ${had}, the code `);
    expect(problem).toContain(asked);
  }
  expect(kinds(await rig.activate({ fromStart: true, bundle }))).toEqual([0, "", `${CommandKind.awaitSignal}.3.paid`]);
});

test("code that lacks the workflow breaks the run; code that loops exceeds its limit", async () => {
  const rig = new Rig();
  const file = join(folder, "other.ts");
  writeFileSync(file, 'import { durable } from "@hopskip/runtime";\nexport const other = durable(async () => 1);\n');
  const { bytes, hash } = await bundleWorkflows({ files: [file] });
  code.set(hash, bytes);
  const broken = await rig.activate({ fromStart: true, bundle: fromHex(hash) as Uint8Array });
  expect(broken.status).toBe(ActivatedStatus.broken);
  expect(broken.problem).toContain('no workflow "order"');
  const looping = await rig.activate({ fromStart: true, bundle: await bundled("loop", "for (;;) {}") });
  expect(looping.status).toBe(ActivatedStatus.limit);
}, 30_000);
