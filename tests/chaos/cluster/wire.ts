/**
 * The wire between machines: a process that carries packets between network namespaces and treats
 * them as it is told (kernels often lack `netem`).
 *
 *     bun wire.ts COUNT SUBNET DEVICE SEED
 *
 * Each of COUNT namespaces has a TUN device with the address SUBNET.1, SUBNET.2, …; the
 * namespace of the caller has DEVICE with SUBNET.254, for clients. The namespaces have no names:
 * they are this process's descriptors, whose numbers it prints as `ready FD FD …`, and are gone
 * with it and those that live in them. It ends when its standard input does.
 *
 * Standard input takes a rule a line, and each is answered by `ok`:
 * `{"from":1,"to":2,"weather":{…}}`; 0 = all machines, 254 = the caller's namespace.
 */
import { dlopen, ptr } from "bun:ffi";
import { Prng } from "#core/base";
import { Air, Link, type Weather } from "./link.ts";

export interface Rule {
  readonly from: number;
  readonly to: number;
  readonly weather: Weather;
}

/** Last byte of the address of the caller's namespace. */
export const outside = 254;

const packetBytesMax = 65_536;
/** Packets that are read of one device before the others have their turn. */
const burst = 64;
const idleMs = 50;

const openRead = 0;
const openReadWrite = 2;
const openNonBlocking = 0o4000;
const openCloseOnExec = 0o2000000;
const cloneNewNet = 0x4000_0000;
const tunSetInterface = 0x4004_54ca;
/** A device of IP packets, without a header before each. */
const tunFlags = 0x0001 | 0x1000;
const pollIn = 1;

function libc() {
  return dlopen("libc.so.6", {
    open: { args: ["ptr", "i32"], returns: "i32" },
    setns: { args: ["i32", "i32"], returns: "i32" },
    unshare: { args: ["i32"], returns: "i32" },
    ioctl: { args: ["i32", "u64", "ptr"], returns: "i32" },
    read: { args: ["i32", "ptr", "u64"], returns: "i64" },
    write: { args: ["i32", "ptr", "u64"], returns: "i64" },
    poll: { args: ["ptr", "u64", "i32"], returns: "i32" },
  }).symbols;
}
type Libc = ReturnType<typeof libc>;

function check(result: number, what: string): number {
  if (result < 0) throw new Error(`Cannot ${what}: the system refuses it`);
  return result;
}

function open(c: Libc, path: string, flags: number): number {
  return check(c.open(ptr(Buffer.from(`${path}\0`)), flags | openCloseOnExec), `open ${path}`);
}

/** A TUN device in the namespace that this thread is in. */
function openTun(c: Libc, name: string): number {
  const fd = open(c, "/dev/net/tun", openReadWrite | openNonBlocking);
  const request = Buffer.alloc(40);
  request.write(name);
  request.writeUInt16LE(tunFlags, 16);
  check(c.ioctl(fd, tunSetInterface, ptr(request)), `make the device ${name}`);
  return fd;
}

function run(...command: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(command);
  if (exitCode !== 0) throw new Error(`Cannot run ${command.join(" ")}: ${stderr.toString().trim()}`);
}

/** How `/proc` shows a descriptor of this process: what `nsenter --net` takes. */
const descriptorPath = (fd: number) => `/proc/${process.pid}/fd/${fd}`;

function configure(namespace: readonly string[], device: string, address: string): void {
  const ip = (...args: string[]) => run(...namespace, "ip", ...args);
  if (namespace.length > 0) ip("link", "set", "lo", "up");
  ip("addr", "add", `${address}/24`, "dev", device);
  ip("link", "set", device, "mtu", "1400", "up");
}

/** Devices by the last byte of their address, and the descriptors of the namespaces. */
function lay(c: Libc, count: number, subnet: string, device: string): { devices: Map<number, number>; namespaces: number[] } {
  const own = open(c, "/proc/thread-self/ns/net", openRead);
  const devices = new Map<number, number>();
  const namespaces: number[] = [];
  for (let machine = 1; machine <= count; machine++) {
    check(c.unshare(cloneNewNet), "make a network namespace");
    const namespace = open(c, "/proc/thread-self/ns/net", openRead);
    namespaces.push(namespace);
    devices.set(machine, openTun(c, "hop0"));
    check(c.setns(own, cloneNewNet), "go back to the first namespace");
    configure(["nsenter", `--net=${descriptorPath(namespace)}`], "hop0", `${subnet}.${machine}`);
  }
  devices.set(outside, openTun(c, device));
  configure([], device, `${subnet}.${outside}`);
  return { devices, namespaces };
}

class Wire {
  private readonly c: Libc;
  /** Last bytes of addresses, in the order of `polled`. */
  private readonly machines: readonly number[];
  private readonly devices: Map<number, number>;
  private readonly polled: Buffer;
  private readonly buffer = Buffer.alloc(packetBytesMax);
  private readonly links = new Map<number, Link>();
  private readonly air = new Air();
  private readonly draw: () => number;
  private rules = "";
  private isOver = false;

  constructor(c: Libc, devices: Map<number, number>, seed: number) {
    this.c = c;
    this.devices = devices;
    this.machines = [...devices.keys()];
    const prng = new Prng(seed);
    this.draw = () => prng.below(1 << 30) / (1 << 30);
    const fds = [...devices.values(), 0];
    this.polled = Buffer.alloc(8 * fds.length);
    for (const [i, fd] of fds.entries()) {
      this.polled.writeInt32LE(fd, i * 8);
      this.polled.writeInt16LE(pollIn, i * 8 + 4);
    }
  }

  carry(): void {
    while (!this.isOver) {
      for (let next = this.air.take(performance.now()); next !== undefined; next = this.air.take(performance.now()))
        this.c.write(this.devices.get(next.to) as number, ptr(next.bytes), next.bytes.length);
      const nextMs = this.air.nextMs();
      const waitMs = nextMs === undefined ? idleMs : Math.max(0, Math.min(idleMs, Math.ceil(nextMs - performance.now())));
      // An interrupted call leaves what it said the last time.
      if (this.c.poll(ptr(this.polled), this.polled.length / 8, waitMs) <= 0) continue;
      for (const [i, machine] of this.machines.entries()) if (this.isReadable(i)) this.readDevice(machine);
      if (this.isReadable(this.machines.length)) this.readRules();
    }
  }

  private isReadable(at: number): boolean {
    return this.polled.readInt16LE(at * 8 + 6) !== 0;
  }

  private readDevice(from: number): void {
    for (let i = 0; i < burst; i++) {
      const bytes = Number(this.c.read(this.devices.get(from) as number, ptr(this.buffer), packetBytesMax));
      if (bytes <= 0) return;
      const isIpv4 = this.buffer.readUInt8(0) >> 4 === 4;
      const to = this.buffer.readUInt8(19);
      if (!isIpv4 || to === from || !this.devices.has(to)) continue;
      const packet = Buffer.from(this.buffer.subarray(0, bytes));
      for (const atMs of this.link(from, to).arrivals(performance.now(), this.draw)) this.air.put({ atMs, to, bytes: packet });
    }
  }

  private link(from: number, to: number): Link {
    const key = from * 256 + to;
    let link = this.links.get(key);
    if (link === undefined) {
      link = new Link();
      this.links.set(key, link);
    }
    return link;
  }

  private readRules(): void {
    const bytes = Number(this.c.read(0, ptr(this.buffer), packetBytesMax));
    if (bytes <= 0) {
      this.isOver = true;
      return;
    }
    this.rules += this.buffer.toString("utf8", 0, bytes);
    const lines = this.rules.split("\n");
    this.rules = lines.pop() as string;
    for (const line of lines) this.follow(JSON.parse(line) as Rule);
  }

  private follow({ from, to, weather }: Rule): void {
    const matching = (number: number) => (number === 0 ? this.machines.filter((each) => each !== outside) : [number]);
    for (const a of matching(from)) for (const b of matching(to)) this.link(a, b).weather = weather;
    process.stdout.write("ok\n");
  }
}

if (import.meta.main) {
  const [count = "", subnet = "", device = "", seed = "1"] = process.argv.slice(2);
  const c = libc();
  const { devices, namespaces } = lay(c, Number(count), subnet, device);
  process.stdout.write(`ready ${namespaces.join(" ")}\n`);
  new Wire(c, devices, Number(seed)).carry();
  process.exit(0);
}
