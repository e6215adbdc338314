/** A node that looks for its cluster: it finds it whenever it comes up, and never makes one. */
import { describe, expect, test } from "bun:test";
import { until } from "../../tests/until.ts";
import { cluster, node, TestPeer } from "./peer-fixture.ts";
import { answerSeekers, type FoundCluster, parseSeeds, SeedSearch, type SeedSearchOptions } from "./seeds.ts";

/** A node that answers those who look for a cluster. */
function seedPeer(id: number, options: ConstructorParameters<typeof TestPeer>[1] = {}): TestPeer {
  const peer = new TestPeer(id, options);
  answerSeekers(peer.net, () => ({
    clusterId: peer.net.clusterId,
    node: peer.net.self,
    life: peer.net.lifeId,
    version: "0.1.0",
    voters: peer.net.clusterId === "" ? [] : [{ node: peer.net.self, address: peer.net.advertised }],
  }));
  return peer;
}

const portOf = (peer: TestPeer) => Number(new URL(`tcp://${peer.net.address}`).port);

class Search implements Disposable {
  readonly found: FoundCluster[] = [];
  readonly problems: string[] = [];
  readonly search: SeedSearch;
  readonly over: Promise<boolean>;

  constructor(peer: TestPeer, seeds: readonly string[], options: Partial<SeedSearchOptions> = {}) {
    this.search = new SeedSearch({
      seeds: parseSeeds(seeds),
      net: peer.net,
      life: peer.net.lifeId,
      advertised: peer.net.advertised,
      clusterId: peer.net.clusterId,
      join: async (found) => void this.found.push(found),
      onState: (_, problem) => void this.problems.push(problem),
      ...options,
    });
    this.over = this.search.run();
  }

  until(problem: string): Promise<unknown> {
    return until(() => this.search.problem.includes(problem), { what: () => `"${problem}", shown was "${this.search.problem}"` });
  }

  [Symbol.dispose](): void {
    this.search.stop();
  }
}

describe("a list of seeds", () => {
  test("is read with and without ports, in one text or many, each once", () => {
    const seeds = parseSeeds(["a:1,b", " [fd00::1]:7 ", "a:1,[::1],", "10.0.0.1"]);
    expect(seeds.map(({ host, port }) => `${host} ${port}`)).toEqual(["a 1", "b 7072", "fd00::1 7", "::1 7072", "10.0.0.1 7072"]);
  });

  test.each(["a:", "a:70000", "::1", "a b:1", "a:1:2", "a:0", "[x]:1"])("is refused with %j in it", (text) => {
    expect(() => parseSeeds([text])).toThrow(/seed.*want/);
  });
});

describe("a search", () => {
  test("of joining nodes alone finds nothing, however long; the cluster that one becomes is found by all others", async () => {
    using first = seedPeer(0);
    using second = seedPeer(0);
    using third = seedPeer(0);
    const all = [first, second, third];
    const seeds = all.map((peer) => peer.net.address);
    const searches = all.map((peer) => new Search(peer, seeds));
    for (const search of searches) await search.until("no seed is of a cluster yet");
    const [own, two, three] = searches as [Search, Search, Search];
    expect(own.search.state.map(({ problem }) => problem)).toEqual([
      `${first.net.address} is this node itself`,
      `${second.net.address} is joining too`,
      `${third.net.address} is joining too`,
    ]);
    expect(searches.flatMap(({ found }) => found)).toEqual([]);
    own.search.stop();
    expect(await own.over).toBe(false);
    first.net.become({ clusterId: cluster, nodeId: node(1) });
    expect(await Promise.all([two.over, three.over])).toEqual([true, true]);
    const found = { clusterId: cluster, members: [first.net.address], voters: [{ node: 1, address: first.net.address }] };
    expect([...two.found, ...three.found]).toEqual([found, found]);
  });

  test("goes on while seeds are down, says why for each, and finds the cluster when one comes up", async () => {
    using seeker = seedPeer(0);
    const down = seedPeer(1);
    const port = portOf(down);
    down.net.close();
    const resolve = async (host: string) => {
      if (host === "nowhere.invalid") throw new Error("getaddrinfo ENOTFOUND nowhere.invalid");
      return [host];
    };
    using search = new Search(seeker, [`127.0.0.1:${port}`, "nowhere.invalid:1"], { resolve });
    await search.until("no seed could be asked");
    const [refused, unnamed] = search.search.state;
    expect(refused).toMatchObject({ seed: `127.0.0.1:${port}`, asked: [{ address: `127.0.0.1:${port}`, outcome: { kind: "failed" } }] });
    expect(refused?.problem).toContain(`Cannot connect to 127.0.0.1:${port}`);
    expect(unnamed?.problem).toBe("its name can't be resolved: getaddrinfo ENOTFOUND nowhere.invalid");
    expect(refused?.triedMs).toBeGreaterThan(0);
    using up = seedPeer(1, { port });
    expect(await search.over).toBe(true);
    expect(search.found[0]?.voters).toEqual([{ node: 1, address: up.net.advertised }]);
  });

  test("resolves names anew in each round, and asks every address of a name", async () => {
    using seeker = seedPeer(0);
    using member = seedPeer(4);
    const rounds = [["127.0.0.9"], ["127.0.0.8", "127.0.0.9"], ["127.0.0.8", "127.0.0.1"]];
    const asked: string[] = [];
    const resolve = async (host: string) => {
      asked.push(host);
      return rounds.length > 1 ? (rounds.shift() as string[]) : (rounds[0] as string[]);
    };
    using search = new Search(seeker, [`hop.internal:${portOf(member)}`], { resolve });
    expect(await search.over).toBe(true);
    expect(asked.length).toBeGreaterThanOrEqual(3);
    expect(search.found[0]).toMatchObject({ clusterId: cluster, members: [member.net.address] });
  });

  test("does not join while its seeds are of different clusters", async () => {
    using seeker = seedPeer(0);
    using one = seedPeer(1);
    using foreign = seedPeer(1, { identity: { clusterId: "hop_00000000000000bb", nodeId: node(1) } });
    using search = new Search(seeker, [one.net.address, foreign.net.address]);
    await search.until("the seeds are of different clusters");
    expect(search.search.problem).toContain(`hop_00000000000000bb (${foreign.net.address})`);
    expect(search.found).toEqual([]);
    foreign.net.close();
    expect(await search.over).toBe(true);
    expect(search.found[0]?.clusterId).toBe(cluster);
  });

  test("of a member takes only its own cluster, and refuses another by name", async () => {
    using member = seedPeer(3);
    using foreign = seedPeer(1, { identity: { clusterId: "hop_00000000000000bb", nodeId: node(1) } });
    using search = new Search(member, [foreign.net.address, member.net.address]);
    await search.until("no seed could be asked");
    expect(search.search.state[0]?.problem).toContain('it is of cluster "hop_00000000000000aa", this is hop_00000000000000bb');
    expect(search.search.state[1]?.problem).toBe(`${member.net.address} is this node itself`);
    using own = seedPeer(1);
    using second = new Search(member, [own.net.address]);
    expect(await second.over).toBe(true);
    expect(search.found).toEqual([]);
  });

  test("with only itself as a seed says so, and makes no cluster", async () => {
    using seeker = seedPeer(0);
    using search = new Search(seeker, [seeker.net.address]);
    await search.until("every seed is this node itself");
    expect(search.found).toEqual([]);
  });

  test("tries again when the cluster does not take it", async () => {
    using seeker = seedPeer(0);
    using member = seedPeer(1);
    let tries = 0;
    const join = async () => {
      tries++;
      if (tries < 3) throw new Error("placement has no leader now");
    };
    using search = new Search(seeker, [member.net.address], { join });
    await search.until(`cluster ${cluster} did not take this node: placement has no leader now`);
    expect(await search.over).toBe(true);
    expect(tries).toBe(3);
    // What did not change was not told again.
    expect(search.problems.filter((each) => each.includes("did not take")).length).toBeLessThanOrEqual(2);
  });

  test("that is stopped ends at once, whatever it waits for", async () => {
    using seeker = seedPeer(0);
    const mute = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    using search = new Search(seeker, [`127.0.0.1:${mute.port}`]);
    const startMs = performance.now();
    search.search.stop();
    expect(await search.over).toBe(false);
    expect(performance.now() - startMs).toBeLessThan(1000);
    mute.stop(true);
  });
});
