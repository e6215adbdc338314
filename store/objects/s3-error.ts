/**
 * What an S3 server's answer, or its absence, means: whether another try may help, and else what
 * to do. Servers differ in their codes; those of AWS, MinIO and versitygw are known here.
 */
import { AttemptError, type AttemptKind } from "./object-error.ts";

/** What the SDK throws; all of it may be missing. */
interface SdkError {
  readonly name?: string;
  readonly message?: string;
  readonly Code?: string;
  readonly code?: string;
  readonly $metadata?: { readonly httpStatusCode?: number; readonly requestId?: string };
}

const kinds: Readonly<Record<string, AttemptKind>> = {
  InvalidAccessKeyId: "credentials",
  SignatureDoesNotMatch: "credentials",
  CredentialsProviderError: "credentials",
  // versitygw, where it has no list of users.
  XAdminUserNotFound: "credentials",
  ExpiredToken: "expired",
  ExpiredTokenException: "expired",
  TokenRefreshRequired: "expired",
  InvalidToken: "credentials",
  AccessDenied: "forbidden",
  AllAccessDisabled: "forbidden",
  AccountProblem: "forbidden",
  Forbidden: "forbidden",
  InvalidObjectState: "forbidden",
  RequestTimeTooSkewed: "clock",
  NoSuchBucket: "no-bucket",
  InvalidBucketName: "no-bucket",
  PermanentRedirect: "region",
  AuthorizationHeaderMalformed: "region",
  IllegalLocationConstraintException: "region",
  NotImplemented: "unsupported",
  MethodNotAllowed: "unsupported",
  InvalidStorageClass: "unsupported",
  BadDigest: "damaged",
  InvalidDigest: "damaged",
  XAmzContentChecksumMismatch: "damaged",
  XAmzContentSHA256Mismatch: "damaged",
  RequestTimeout: "unavailable",
  ConditionalRequestConflict: "unavailable",
  OperationAborted: "unavailable",
  IncompleteBody: "unavailable",
  // The SDK's name for an answer that it can't read.
  UnknownError: "unavailable",
};

const advice: Partial<Readonly<Record<AttemptKind, string>>> = {
  credentials: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what else the AWS shared configuration names, to a key of this server",
  expired: "get new temporary credentials; a process that reads them from its environment has to be started again",
  forbidden: "let these credentials do s3:GetObject, PutObject, DeleteObject, ListBucket and AbortMultipartUpload there",
  clock: "set this machine's clock: it is too far from the server's",
  "no-bucket": "make the bucket, or correct its name in the URL",
  region: "name the bucket's region in the URL, as in ?region=eu-central-1",
  unsupported: "use a server that can do this",
};

/** A region that is nowhere set is the one configuration error that the SDK throws without a name. */
const noRegion = /region is missing/i;

export function codeOfS3(error: unknown): string {
  const { name, Code, code } = error as SdkError;
  return Code ?? (name !== undefined && name !== "Error" ? name : (code ?? "Error"));
}

export function statusOfS3(error: unknown): number | undefined {
  return (error as SdkError).$metadata?.httpStatusCode;
}

export function s3AttemptError(error: unknown): AttemptError {
  if (error instanceof AttemptError) return error;
  const { message = String(error), $metadata } = error as SdkError;
  const status = statusOfS3(error);
  const code = codeOfS3(error);
  const kind = noRegion.test(message) ? "region" : (kinds[code] ?? kindOfStatus(status));
  const request = $metadata?.requestId === undefined ? "" : ` (request ${$metadata.requestId})`;
  const text = message === "" || message === code ? "" : `: ${message}`;
  const what = status === undefined ? `there is no answer, ${code}${text}` : `the server answered ${status} ${code}${text}${request}`;
  return new AttemptError(kind, what, { cause: error, ...(advice[kind] !== undefined && { advice: advice[kind] }) });
}

function kindOfStatus(status: number | undefined): AttemptKind {
  if (status === 501) return "unsupported";
  if (status === undefined || status >= 500 || [307, 408, 409, 429].includes(status)) return "unavailable";
  if (status === 401 || status === 403) return "forbidden";
  if (status === 301) return "region";
  // Who says "not found" without saying that it is the key may be a proxy that lost its server.
  if (status === 404 || status < 300) return "unavailable";
  return "rejected";
}
