import { describe, expect, test } from "bun:test";
import { advertisedHost, advertisedPeer, completeConfig, foundingOf, hostAndPort, isClustered, type NodeConfig } from "./config.ts";

const config = (given: Partial<NodeConfig> = {}) => completeConfig({ dataDir: "d", version: "1.0.0", ...given });

describe("completeConfig()", () => {
  test.each<[Partial<NodeConfig>, string]>([
    [{ peerPort: 70_000 }, "peerPort is 70000"],
    [{ seeds: ["10.0.0.1:7072"], bootstrap: true }, "want a bootstrap or seeds, not both"],
    [{ seeds: ["http://a:1"] }, 'a seed is "http://a:1"'],
    [{ seeds: ["::1:7072"] }, "a seed is"],
    [{ advertise: "0.0.0.0:7072" }, "no address that a peer could reach"],
    [{ advertise: "10.0.0.1:0" }, "want a port"],
    [{ zone: "a b" }, "its zone is"],
  ])("refuses %j", (given, text) => {
    expect(() => config(given)).toThrow(text);
  });
});

describe("a new data folder", () => {
  test("alone on loopback makes a development cluster, which has no port for peers", () => {
    expect([foundingOf(config()), isClustered(config())]).toEqual(["found", false]);
    expect(isClustered(config({ peerPort: 0 }))).toBe(true);
  });

  test("with seeds seeks for ever, also on loopback", () => {
    expect(foundingOf(config({ seeds: ["10.0.0.1"] }))).toBe("seek");
    expect(foundingOf(config({ host: "10.0.0.2", seeds: ["[fd00::1]:7072"] }))).toBe("seek");
  });

  test("that others can reach has to be told", () => {
    expect(() => foundingOf(config({ host: "10.0.0.2" }))).toThrow("--seed");
    expect(foundingOf(config({ host: "10.0.0.2", bootstrap: true }))).toBe("found");
  });
});

describe("what peers are told", () => {
  test("is what was said, else the address that it listens on", () => {
    expect(advertisedPeer(config({ host: "fd00::2" }), 7072)).toBe("[fd00::2]:7072");
    expect(advertisedPeer(config({ host: "0.0.0.0", advertise: "node-1.example:9000" }), 7072)).toBe("node-1.example:9000");
    expect(advertisedPeer(config({ host: "0.0.0.0", advertise: "node-1.example" }), 7172)).toBe("node-1.example:7172");
    expect(advertisedHost(config({ advertise: "[fd00::3]:1" }))).toBe("fd00::3");
  });

  test("host and port are read as people write them", () => {
    expect(hostAndPort("[::1]:7072", "x")).toEqual({ host: "::1", port: 7072 });
    expect(hostAndPort("node-1", "x")).toEqual({ host: "node-1", port: undefined });
  });
});
