/** Parents and children, for tests of how they live and end. */
import {
  activity,
  CancellationScope,
  CancelledError,
  durable,
  resultOf,
  type SpawnSettings,
  shield,
  signal,
  sleep,
  spawn,
  workflowInfo,
} from "@hopskip/runtime";

export interface Parcel {
  readonly id: string;
  readonly ms?: number;
  readonly fails?: boolean;
}

export const ship = durable(async ({ id, ms = 0, fails = false }: Parcel) => {
  try {
    await sleep(ms);
    if (fails) throw new Error(`parcel ${id} is lost`);
    return `${id} shipped`;
  } catch (error) {
    if (error instanceof CancelledError) await activity("note", `${id} stopped: ${error.reason}`);
    throw error;
  }
});

/** Ships all, and says what became of each. */
export const order = durable(async (parcels: readonly Parcel[]) => {
  const children = parcels.map((parcel) => spawn(ship, parcel));
  return await Promise.all(
    children.map(async (child) => {
      const { generation } = await child.started();
      return [child.run, generation, await child.result().catch((error: Error) => error.message)];
    }),
  );
});

/** Spawns one, and ends as it is told. */
export const parent = durable(async ({ how, settings = {} }: { how: "completes" | "fails" | "waits"; settings?: SpawnSettings }) => {
  const child = spawn("ship", { id: "p", ms: 3_600_000 }, settings);
  await child.started();
  if (how === "fails") throw new Error("no stock");
  if (how === "waits") await signal("go");
  return child.run;
});

/** Waits for a child, and cleans up when that is cut short. */
export const waiter = durable(async (settings: SpawnSettings) => {
  const child = spawn(ship, { id: "p", ms: 3_600_000 }, { instance: "parcel", ...settings });
  await child.started();
  try {
    return await child.result();
  } finally {
    await activity("note", "waiter cleans up");
    if (settings.cancellationType === "try-cancel") {
      const end = await child.result().catch((error: Error) => `${error.name}: ${error.message}`);
      await activity("note", end);
    }
  }
});

/** Talks to a child by its handle. */
export const talker = durable(async () => {
  const child = spawn(listener, undefined, { instance: "listener" });
  await child.signal("word", "hello");
  await child.signal("word", "world");
  const said = await child.result();
  const late = await child.signal("word", "late").catch((error: { type: string }) => error.type);
  const gone = await child.cancel("enough").catch((error: { type: string }) => error.type);
  return [said, late, gone];
});
export const listener = durable(async () => `${await signal<string>("word")} ${await signal<string>("word")}`);

/** Asks three, takes the first answer, and calls the others off. */
export const race = durable(async () => {
  const asked = ["a", "b", "c"].map((name, i) => {
    const scope = new CancellationScope();
    const answer = scope.run(async () => {
      try {
        await sleep((i + 1) * 1000);
        return name;
      } finally {
        if (scope.cancelled) await activity("note", `${name} called off`);
      }
    });
    return { scope, answer };
  });
  const first = await Promise.race(asked.map(({ answer }) => answer));
  for (const { scope } of asked) scope.cancel("another was faster");
  const all = await Promise.allSettled(asked.map(({ answer }) => answer));
  return { first, all: all.map((each) => (each.status === "fulfilled" ? each.value : (each.reason as CancelledError).reason)) };
});

/** A scope in a scope, one in a shield, and a shield in one. */
export const nested = durable(async () => {
  const said: string[] = [];
  const naps = (name: string) => async () => {
    await sleep(1000).then(
      () => said.push(`${name} slept`),
      (error: CancelledError) => said.push(`${name} ${error.reason}`),
    );
  };
  const outer = new CancellationScope();
  const work = outer.run(async () => {
    const inner = new CancellationScope();
    await Promise.all([
      naps("outer")(),
      inner.run(naps("inner")),
      shield(naps("shielded")),
      shield(() => new CancellationScope().run(naps("within shield"))),
    ]);
    return inner.cancelled;
  });
  outer.cancel("outer");
  const sibling = new CancellationScope();
  const other = sibling.run(naps("sibling"));
  sibling.cancel("sibling");
  sibling.cancel("again");
  const cancelled = await work;
  await other;
  return { cancelled, said, isOuter: outer.cancelled };
});

/** A child of a scope that is cancelled alone. */
export const scoped = durable(async () => {
  const scope = new CancellationScope();
  const child = await scope.run(() => spawn(ship, { id: "s", ms: 3_600_000 }, { cancellationType: "wait-completed" }));
  await child.started();
  const end = scope.run(() => child.result());
  scope.cancel("not wanted");
  const name = await end.catch((error: Error) => error.name);
  return [name, workflowInfo().generation];
});

/** Spawns one of a type that only a deployment may have. */
export const stranger = durable(async (type: string) => {
  const child = spawn(type, null, { contention: "reject" });
  const refusals = await Promise.allSettled([child.started(), child.result()]);
  return refusals.map((each) => (each.status === "rejected" ? (each.reason as { type: string }).type : each.value));
});

/** Is somewhere when it is cancelled, and cleans up. */
export const busy = durable(async (where: "running" | "backing off" | "sleeping" | "waiting" | "other run" | "child") => {
  try {
    if (where === "running") await activity("long");
    else if (where === "backing off") await activity("fails", undefined, { retry: { initialMs: 3_600_000, maxMs: 3_600_000 } });
    else if (where === "sleeping") await sleep(86_400_000);
    else if (where === "waiting") await signal("never");
    else if (where === "other run") await resultOf("idler");
    else await spawn(ship, { id: "c", ms: 86_400_000 }, { instance: "parcel" }).result();
  } finally {
    await activity("note", `${where}: cleaned up`);
  }
});
export const idler = durable(async () => await signal("never"));
