/**
 * The AWS SDK, loaded when the first request needs it: a process that has no object storage, or
 * does not use it yet, does not pay for it.
 *
 * Credentials come from the SDK's default chain, as far as @aws-sdk/client-s3 brings it: the
 * environment, the shared configuration files, SSO, web identity, processes, and the metadata
 * services of containers and machines.
 */
import type * as Sdk from "@aws-sdk/client-s3";

export interface S3ClientOptions {
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly pathStyle?: boolean | undefined;
  /** In place of the default chain. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string; readonly sessionToken?: string } | undefined;
}

export interface LoadedS3 {
  readonly sdk: typeof Sdk;
  readonly client: Sdk.S3Client;
}

const connectMs = 5000;
const socketsMax = 32;

/** Requests that wait for a socket are no news; by default the SDK warns of them on standard error. */
const silent = { trace() {}, debug() {}, info() {}, warn() {}, error() {} };

export async function loadS3({ endpoint, region, pathStyle, credentials }: S3ClientOptions): Promise<LoadedS3> {
  const sdk = await import("@aws-sdk/client-s3");
  // Servers of one's own seldom have regions, but signatures name one.
  const named = region ?? (endpoint === undefined ? undefined : (process.env.AWS_REGION ?? "us-east-1"));
  const client = new sdk.S3Client({
    ...(endpoint !== undefined && { endpoint }),
    ...(named !== undefined && { region: named }),
    ...(credentials !== undefined && { credentials }),
    forcePathStyle: pathStyle ?? endpoint !== undefined,
    // retry.ts tries again, and nobody else.
    maxAttempts: 1,
    // A clock that is so wrong has to be set: other things than signatures depend on it.
    disableClockSkewCorrection: true,
    // SHA-256 is sent and compared explicitly.
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
    // A server that does not answer it would be waited for 6 s.
    expectContinueHeader: false,
    requestHandler: {
      connectionTimeout: connectMs,
      httpAgent: { maxSockets: socketsMax },
      httpsAgent: { maxSockets: socketsMax },
      logger: silent,
    },
  });
  return { sdk, client };
}
