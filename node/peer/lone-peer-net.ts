/** The network of a node that is alone: it can ask itself, and nobody else. */
import type { NodeId, ShardId } from "#core/base";
import type { RaftMessageInit } from "#proto";
import { Methods } from "./methods.ts";
import {
  type CallHandler,
  type CallOptions,
  NotSentError,
  type PeerNet,
  type ServeOptions,
  type StreamHandler,
  type StreamOptions,
} from "./peer-net.ts";

export class LonePeerNet implements PeerNet {
  readonly self: NodeId;
  readonly address = "";
  onRaft: PeerNet["onRaft"] = () => {};
  onReachable: PeerNet["onReachable"] = () => {};
  onUnreachable: PeerNet["onUnreachable"] = () => {};
  beatPayload: PeerNet["beatPayload"] = () => undefined;
  onBeat: PeerNet["onBeat"] = () => {};
  private readonly methods = new Methods();

  constructor(self: NodeId) {
    this.self = self;
  }

  sendRaft(_to: NodeId, _shard: ShardId, _message: RaftMessageInit): boolean {
    return false;
  }

  call(to: NodeId, method: string, body: Uint8Array, options: CallOptions = {}): Promise<Uint8Array> {
    if (to !== this.self) return Promise.reject(nobody(`node ${to}`));
    return this.methods.callOwn(this.self, { method, body, whom: `node ${to}` }, options);
  }

  callAt({ address }: { readonly address: string }): Promise<Uint8Array> {
    return Promise.reject(nobody(address));
  }

  serve(method: string, handler: CallHandler, options?: ServeOptions): void {
    this.methods.serve(method, handler, options);
  }

  stream(to: NodeId, method: string, body: Uint8Array, options: StreamOptions = {}): AsyncIterable<Uint8Array> {
    if (to !== this.self) throw nobody(`node ${to}`);
    return this.methods.streamOwn(this.self, { method, body, whom: `node ${to}` }, options);
  }

  streamAt({ address }: { readonly address: string }): AsyncIterable<Uint8Array> {
    throw nobody(address);
  }

  serveStream(method: string, handler: StreamHandler, options?: ServeOptions): void {
    this.methods.serveStream(method, handler, options);
  }

  setPeers(): void {}

  lastHeardMs(): number {
    return 0;
  }

  close(): void {}
}

const nobody = (whom: string) => new NotSentError(`Cannot reach ${whom}: this node has no port for peers; start it with --peer-port`);
