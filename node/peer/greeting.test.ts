import { expect, test } from "bun:test";
import type { PeerWelcome } from "#proto";
import { type Self, welcomeProblem } from "./greeting.ts";
import { cluster, node } from "./peer-fixture.ts";

const self: Self = { clusterId: cluster, nodeId: node(1), version: "0.4.2", advertised: "10.0.0.1:7072", life: new Uint8Array(16).fill(1) };
const welcome: PeerWelcome = { clusterId: cluster, node: 2, version: "0.4.0", protocol: 1, life: new Uint8Array(16).fill(2) };
const problem = (wanted: number, own: Partial<PeerWelcome>, me: Partial<Self> = {}) =>
  welcomeProblem({ ...self, ...me }, node(wanted), { ...welcome, ...own })?.rule;

test("a welcome is of the node that was meant, in its cluster, of a version that fits", () => {
  expect(problem(2, {})).toBeUndefined();
  expect(problem(0, {})).toBeUndefined();
  expect(problem(2, { version: "0.5.9" })).toBeUndefined();
  expect(problem(2, { version: "0.3.0-dev" })).toBeUndefined();
  expect(problem(3, {})).toBe("WRONG_NODE");
  expect(problem(2, { clusterId: "hop_00000000000000bb" })).toBe("FOREIGN_CLUSTER");
  expect(problem(2, { version: "0.6.0" })).toBe("VERSION_APART");
  expect(problem(2, { version: "0.2.9" })).toBe("VERSION_APART");
  expect(problem(2, { protocol: 2 })).toBe("PROTOCOL_APART");
  expect(problem(0, { life: self.life })).toBe("ITSELF");
});

test("a node that is joining is welcome wherever it asks", () => {
  const joining = { clusterId: "", nodeId: node(0) };
  expect(problem(0, {}, joining)).toBeUndefined();
  expect(problem(0, { clusterId: "", node: 0 }, joining)).toBeUndefined();
  expect(problem(0, { clusterId: "", node: 0 })).toBe("FOREIGN_CLUSTER");
});
