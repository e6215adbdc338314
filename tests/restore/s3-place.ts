/** A bucket of a real S3 server that clusters seal to and are restored from, directly or through a proxy that does things wrong. */
import { join } from "node:path";
import { FaultProxy } from "../objects/fault-proxy.ts";
import { bucket, credentials, type S3Server } from "../objects/s3-server.ts";

/** What processes that the test starts are to know. */
export function knowCredentials(): void {
  Object.assign(process.env, {
    AWS_ACCESS_KEY_ID: credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
    AWS_REGION: "us-east-1",
  });
}

export class S3Place implements AsyncDisposable {
  readonly server: S3Server;
  readonly proxy: FaultProxy;
  private readonly prefix: string;

  private constructor(server: S3Server, { prefix, proxy }: { prefix: string; proxy: FaultProxy }) {
    this.server = server;
    this.proxy = proxy;
    this.prefix = prefix;
  }

  static async of(server: S3Server, prefix: string): Promise<S3Place> {
    return new S3Place(server, { prefix, proxy: await FaultProxy.start(server.endpoint) });
  }

  /** Folder with the objects. */
  get folder(): string {
    return join(this.server.bucketFolder, this.prefix);
  }

  get url(): string {
    return this.urlAt(this.server.endpoint);
  }

  get proxiedUrl(): string {
    return this.urlAt(this.proxy.endpoint);
  }

  private urlAt(endpoint: string): string {
    return `s3://${bucket}/${this.prefix}?endpoint=${encodeURIComponent(endpoint)}&path-style=true`;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.proxy[Symbol.asyncDispose]();
  }
}
