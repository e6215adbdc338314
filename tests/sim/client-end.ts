/** A client's stream at a node: what the services do with its calls, on the node's real router. */
import { asSeq, type Partition, type RunId, runPartition } from "#core/base";
import type { Command } from "#core/shard";
import type { Identity } from "#proto";
import { asHopError } from "../../node/service/status.ts";
import type { Answer, Ask, ClientReply } from "./client.ts";
import type { SimNode } from "./node.ts";

const identity: Identity = { issuer: "local", subject: "sim", verified: false, causeSeq: 0 };
/** How long a leader is waited for. */
const budgetMs = 6000;

export class ClientEnd {
  private readonly node: SimNode;
  private readonly send: (answer: Answer) => void;
  private readonly made: () => string;
  private readonly forgets = new Map<number, () => void>();

  /** `made` makes up a run's name. */
  constructor(node: SimNode, send: (answer: Answer) => void, made: () => string) {
    this.node = node;
    this.send = send;
    this.made = made;
  }

  ask({ number, command, isUnnamed }: Ask): void {
    switch (command.kind) {
      case "describe":
        return this.read(number, this.describe(runPartition(command.run)));
      case "history":
        return this.read(number, this.history(runPartition(command.run)));
      case "start":
        return this.command(number, isUnnamed ? { ...command, run: this.made() as RunId } : command);
      default:
        return this.command(number, command);
    }
  }

  /** Nobody waits for what is open. */
  closed(): void {
    for (const forget of this.forgets.values()) forget();
    this.forgets.clear();
  }

  private command(number: number, command: Command): void {
    try {
      let isAnswered = false;
      const forget = this.node.router.command({ identity, epoch: 0, budgetMs }, command, (reply) => {
        isAnswered = true;
        this.forgets.delete(number);
        this.answer(number, reply);
      });
      if (!isAnswered) this.forgets.set(number, forget);
    } catch (error) {
      this.refuse(number, error);
    }
  }

  private read(number: number, reading: Promise<ClientReply>): void {
    reading.then(
      (reply) => this.answer(number, reply),
      (error: unknown) => this.refuse(number, error),
    );
  }

  private async describe(partition: Partition): Promise<ClientReply> {
    return { kind: "described", state: await this.node.router.describe(partition, { epoch: 0, budgetMs }) };
  }

  private async history(partition: Partition): Promise<ClientReply> {
    const events: Uint8Array[] = [];
    for await (const chunk of this.node.router.history(partition, asSeq(0))) for (const bytes of chunk) events.push(bytes.slice());
    return { kind: "told", events };
  }

  private refuse(number: number, error: unknown): void {
    const { reason, message } = asHopError(error);
    this.answer(number, { kind: "rejected", rejection: { reject: reason, message } });
  }

  private answer(number: number, reply: ClientReply): void {
    if (!this.node.isDead) this.send({ number, reply });
  }
}
