import { describe, expect, test } from "bun:test";
import {
  applyDeploy,
  applyRoute,
  bundleOfStart,
  type Deploy,
  type DeployedType,
  decideDeploy,
  decideRoute,
  deployedVersion,
  emptyNamespace,
  loadDeployments,
  type NamespaceDeployments,
  type Route,
  saveDeployments,
} from "./registry.ts";

const bundle = (byte: number) => new Uint8Array(32).fill(byte);
const at = (timeMs: number) => ({ timeMs, identity: undefined, version: timeMs });

/** Deployments of one namespace, as commands change them. */
class Town {
  state: NamespaceDeployments = emptyNamespace("n");

  /** Returns the version under which it is known. */
  deploy(byte: number, options: Partial<Deploy> = {}): number {
    const deploy = { bundle: bundle(byte), size: 1, types: ["a"], ...options };
    const event = decideDeploy(this.state, deploy);
    if (event === undefined) return deployedVersion(this.state, deploy);
    this.state = applyDeploy(this.state, event, at(event.version));
    return event.version;
  }

  /** Returns what came of it. */
  route(route: Partial<Route> & { readonly version: number }): string {
    const event = decideRoute(this.state, { type: "a", reason: "", ...route });
    if (event === undefined) return "as it was";
    if ("reject" in event) return event.message;
    this.state = applyRoute(this.state, event, at(99));
    return "done";
  }

  get a(): DeployedType {
    const found = this.state.types.get("a");
    if (found === undefined) throw new Error("a is not deployed");
    return found;
  }

  get shown() {
    const { version, previous, ramp, versions } = this.a;
    return { version, previous, ramp, versions: versions.map((one) => one.version) };
  }
}

describe("where starts go", () => {
  test("to what is deployed last, unless it is held, and to what is promoted", () => {
    const town = new Town();
    expect([town.deploy(1), town.deploy(2), town.deploy(3, { held: true })]).toEqual([1, 2, 3]);
    expect(town.shown).toEqual({ version: 2, previous: 1, ramp: undefined, versions: [3, 2, 1] });
    expect(town.deploy(3, { held: true })).toBe(3);
    expect(town.route({ version: 3 })).toBe("done");
    expect(town.route({ version: 3 })).toBe("as it was");
    expect(town.shown).toEqual({ version: 3, previous: 2, ramp: undefined, versions: [3, 2, 1] });
    expect(bundleOfStart(town.a, "n:x")).toEqual(bundle(3));
    expect(town.route({ version: 2, reason: "it is bad" })).toBe("done");
    expect(town.shown).toMatchObject({ version: 2, previous: 3 });
  });

  test("the first version of a type is current, also where it is held", () => {
    const town = new Town();
    town.deploy(1, { held: true, types: ["a", "b"] });
    expect(town.shown).toMatchObject({ version: 1, previous: 0 });
    town.deploy(2, { held: true, types: ["b", "c"] });
    expect([...town.state.types.values()].map(({ type, version }) => `${type}${version}`)).toEqual(["a1", "b1", "c2"]);
  });

  test("a share of them to a ramp: by name, the same each time, and no fewer when it grows", () => {
    const town = new Town();
    for (const byte of [1, 2]) town.deploy(byte, { held: true });
    const names = Array.from({ length: 5000 }, (_, i) => `n:order-${i}`);
    let before = new Set<string>();
    for (const percent of [1, 10, 50, 99]) {
      expect(town.route({ version: 2, percent })).toBe("done");
      expect(town.route({ version: 2, percent })).toBe("as it was");
      const taken = new Set(names.filter((name) => bundleOfStart(town.a, name)[0] === 2));
      expect(Math.abs(taken.size / names.length - percent / 100)).toBeLessThan(0.02);
      expect([...before].every((name) => taken.has(name))).toBe(true);
      before = taken;
    }
    expect(town.route({ version: 2, percent: 0 })).toBe("done");
    expect(town.shown).toMatchObject({ version: 1, ramp: undefined });
    expect(town.route({ version: 2, percent: 5 })).toBe("done");
    expect(town.route({ version: 2 })).toBe("done");
    expect(town.shown).toMatchObject({ version: 2, previous: 1, ramp: undefined });
  });

  test("a deployment ends a ramp", () => {
    const town = new Town();
    for (const byte of [1, 2]) town.deploy(byte, { held: true });
    town.route({ version: 2, percent: 20 });
    town.deploy(3);
    expect(town.shown).toMatchObject({ version: 3, previous: 1, ramp: undefined });
  });

  test("is refused where it is not known, or is nonsense", () => {
    const town = new Town();
    town.deploy(1);
    town.deploy(2);
    const refused = (route: Partial<Route> & { readonly version: number }) => town.route(route);
    expect(refused({ version: 9 })).toContain("the versions of it that are known are 2, 1");
    expect(refused({ version: 1, type: "b" })).toContain("it is not deployed there");
    expect(refused({ version: 2, percent: 10 })).toContain("it is the current version");
    for (const percent of [100, -1, 1.5]) expect(refused({ version: 1, percent })).toContain("want a whole number from 0 to 99");
    expect(town.route({ version: 1, percent: 0 })).toBe("as it was");
  });
});

test("the last versions are known, and those in use however old they are", () => {
  const town = new Town();
  for (let byte = 1; byte <= 3; byte++) town.deploy(byte, { held: true });
  town.route({ version: 2 });
  town.route({ version: 3, percent: 5 });
  for (let byte = 4; byte <= 40; byte++) town.deploy(byte, { held: true });
  const { versions } = town.shown;
  expect(versions.slice(0, 20)).toEqual(Array.from({ length: 20 }, (_, i) => 40 - i));
  expect(versions.slice(20)).toEqual([3, 2, 1]);
});

test("comes back from what is saved, also from what a version before saved", () => {
  const town = new Town();
  for (let byte = 1; byte <= 5; byte++) town.deploy(byte, { held: byte > 3 });
  town.route({ version: 5, percent: 12 });
  expect(loadDeployments(saveDeployments(town.state))).toEqual(town.state);
  const saved = saveDeployments(town.state);
  const old = { ...saved, type: saved.type.map((type) => ({ ...type, previous: 0, other: [], rampVersion: 0, rampPercent: 0 })) };
  expect(loadDeployments(old).types.get("a")).toMatchObject({ version: 3, versions: [{ version: 3 }], previous: 0, ramp: undefined });
});
