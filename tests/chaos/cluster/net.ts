/** Machines with a network of their own between them, whose weather a test makes. */
import { existsSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { fileURLToPath } from "node:url";
import { until } from "../../until.ts";
import { fair, type Weather } from "./link.ts";
import { outside, type Rule } from "./wire.ts";

export { outside } from "./wire.ts";

const wire = fileURLToPath(new URL("wire.ts", import.meta.url));

/** Why there can be no such network here, or undefined. */
export function whyNoNet(): string | undefined {
  if (process.getuid?.() !== 0) return "network namespaces need root";
  if (!existsSync("/dev/net/tun")) return "there is no /dev/net/tun";
  for (const name of ["ip", "nsenter", "setpriv"]) if (Bun.which(name) === null) return `${name} is not installed`;
  const { exitCode, stderr } = Bun.spawnSync(["unshare", "--net", "ip", "tuntap", "add", "dev", "hop0", "mode", "tun"]);
  return exitCode === 0 ? undefined : `may not make a network namespace with a device: ${stderr.toString().trim().split("\n")[0]}`;
}

let networks = 0;

/** First three bytes of addresses that this machine does not use: tests of other processes have networks of their own. */
function freeSubnet(from: number): string {
  const used = Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address));
  for (let i = from; ; i++) {
    const subnet = `10.${64 + (i % 128)}.${Math.floor(i / 128) % 256}`;
    if (!used.some((address) => address.startsWith(`${subnet}.`))) return subnet;
  }
}

export class Net implements AsyncDisposable {
  readonly machines: number;
  private readonly subnet: string;
  private readonly child: Bun.Subprocess<"pipe", "pipe", "pipe">;
  private namespaces: readonly string[] = [];
  private said = "";
  private answered = 0;
  private told = 0;
  private isOver = false;

  private constructor(machines: number, seed: number) {
    this.machines = machines;
    const number = networks++;
    this.subnet = freeSubnet(process.pid + number * 4099);
    const device = `hop${process.pid}.${number}`;
    this.child = Bun.spawn([process.execPath, wire, String(machines), this.subnet, device, String(seed)], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
    });
    void this.listen();
  }

  static async make(machines: number, seed = 1): Promise<Net> {
    const net = new Net(machines, seed);
    const line = await until(() => /^ready (.*)\n/.exec(net.said) ?? (net.child.exitCode === null ? undefined : net.failed()));
    net.said = net.said.slice(line[0].length);
    net.namespaces = (line[1] as string).split(" ").map((fd) => `/proc/${net.child.pid}/fd/${fd}`);
    return net;
  }

  private failed(): never {
    throw new Error(`The wire ended with code ${this.child.exitCode}: ${this.said}`);
  }

  private async listen(): Promise<void> {
    const decoder = new TextDecoder();
    const errors = this.child.stderr.text().then((text) => {
      this.said += text;
    });
    for await (const chunk of this.child.stdout) {
      this.said += decoder.decode(chunk, { stream: true });
      this.answered += this.said.split("ok\n").length - 1;
      this.said = this.said.replaceAll("ok\n", "");
    }
    await errors;
    if (!this.isOver) console.error(`The wire of ${this.subnet} ended by itself: ${this.said}`);
  }

  /** Address of a machine, from 1. */
  address(machine: number): string {
    return `${this.subnet}.${machine}`;
  }

  /** What starts a process on a machine; it dies with its parent. */
  enter(machine: number): string[] {
    return ["nsenter", `--net=${this.namespaces[machine - 1]}`, "setpriv", "--pdeathsig", "KILL"];
  }

  /** One direction between two machines; 0 = all machines, `outside` = clients. In force when it resolves. */
  async set(from: number, to: number, weather: Partial<Weather>): Promise<void> {
    const rule: Rule = { from, to, weather: { ...fair, ...weather } };
    const awaited = ++this.told;
    void this.child.stdin.write(`${JSON.stringify(rule)}\n`);
    void this.child.stdin.flush();
    await until(() => this.answered >= awaited || (this.child.exitCode !== null && this.failed()));
  }

  /** No packet passes between the machine and any other one. Clients still reach it. */
  async isolate(machine: number): Promise<void> {
    await this.deafen(machine);
    await this.mute(machine);
  }

  /** The machine hears nobody and is heard. */
  async deafen(machine: number): Promise<void> {
    await this.set(0, machine, { isCut: true });
  }

  /** The machine is heard by nobody and hears. */
  async mute(machine: number): Promise<void> {
    await this.set(machine, 0, { isCut: true });
  }

  /** The same weather between all machines, and for clients where `alsoClients`. */
  async everywhere(weather: Partial<Weather>, { alsoClients = false } = {}): Promise<void> {
    await this.set(0, 0, weather);
    if (!alsoClients) return;
    await this.set(outside, 0, weather);
    await this.set(0, outside, weather);
  }

  heal(): Promise<void> {
    return this.everywhere(fair, { alsoClients: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.isOver = true;
    await this.child.stdin.end();
    await this.child.exited;
  }
}
