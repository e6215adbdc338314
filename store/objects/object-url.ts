/** Where objects are, as one text: `file:///folder` or `s3://bucket/prefix?option=value`. */
import { isAbsolute, normalize } from "node:path";
import { HopError } from "#core/base";
import { isBucketPrefix } from "./object-key.ts";
import type { S3Options } from "./s3-backend.ts";

export type ObjectPlace = { readonly kind: "file"; readonly dir: string } | { readonly kind: "s3"; readonly options: S3Options };

const knownOptions = ["endpoint", "region", "path-style", "storage-class", "sse", "kms-key"] as const;
type OptionName = (typeof knownOptions)[number];

/** Those from which an object can be read at any time. */
const storageClasses = ["STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY"];

/** Throws BAD_REQUEST with the rule that the URL breaks. */
export function parseObjectUrl(text: string): ObjectPlace {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "file:") return filePlace(text, url);
  if (url?.protocol === "s3:") return { kind: "s3", options: s3Options(text, url) };
  throw broken(text, "it is neither file:///folder nor s3://bucket/prefix?option=value");
}

function filePlace(text: string, url: URL): ObjectPlace {
  const dir = normalize(decodeURIComponent(url.pathname)).replace(/\/+$/, "");
  if (url.host !== "") throw broken(text, `it names the host ${url.host}; a folder has three slashes, as in file:///folder`);
  if (url.search !== "" || url.hash !== "") throw broken(text, "a folder has no options");
  if (!isAbsolute(dir)) throw broken(text, "the folder is not an absolute path");
  return { kind: "file", dir };
}

function s3Options(text: string, url: URL): S3Options {
  const bucket = url.host;
  const prefix = url.pathname.replace(/^\/|\/$/g, "");
  if (!/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket)) throw broken(text, `"${bucket}" is no bucket's name`);
  if (url.username !== "" || url.password !== "")
    throw broken(text, "credentials do not belong into it; set AWS_ACCESS_KEY_ID and the like");
  if (prefix !== "" && !isBucketPrefix(prefix))
    throw broken(text, `prefix "${prefix}" is not made of segments of a-z, 0-9, ".", "_" and "-"`);
  const options = optionsOf(text, url);
  const pathStyle = options.get("path-style");
  const sse = options.get("sse");
  const kmsKey = options.get("kms-key");
  return {
    bucket,
    prefix,
    endpoint: endpointOf(text, options.get("endpoint")),
    region: options.get("region"),
    pathStyle: pathStyle === undefined ? undefined : oneOf(text, "path-style", pathStyle, ["true", "false"]) === "true",
    storageClass: optional(options.get("storage-class"), (value) => oneOf(text, "storage-class", value, storageClasses)),
    sse: optional(sse, (value) => oneOf(text, "sse", value, ["AES256", "aws:kms"]) as "AES256" | "aws:kms"),
    kmsKey: optional(kmsKey, (value) => (sse === "aws:kms" ? value : refuse(text, "kms-key needs sse=aws:kms"))),
  };
}

function optionsOf(text: string, url: URL): Map<OptionName, string> {
  const options = new Map<OptionName, string>();
  for (const [name, value] of url.searchParams) {
    const known = knownOptions.find((each) => each === name);
    if (known === undefined) throw broken(text, `there is no option "${name}"; there are ${knownOptions.join(", ")}`);
    if (options.has(known)) throw broken(text, `option ${name} is there twice`);
    if (value === "") throw broken(text, `option ${name} has no value`);
    options.set(known, value);
  }
  return options;
}

function endpointOf(text: string, value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url?.protocol !== "http:" && url?.protocol !== "https:") throw broken(text, `endpoint "${value}" is no http or https URL`);
  return value.replace(/\/+$/, "");
}

const optional = <T>(value: string | undefined, read: (value: string) => T) => (value === undefined ? undefined : read(value));

function oneOf(text: string, name: OptionName, value: string, allowed: readonly string[]): string {
  if (!allowed.includes(value)) throw broken(text, `option ${name} is "${value}", want ${allowed.join(" or ")}`);
  return value;
}

function refuse(text: string, why: string): never {
  throw broken(text, why);
}

/** Without what could be a password. */
function broken(text: string, why: string): HopError {
  const shown = text.replace(/\/\/[^/@]*@/, "//…@");
  return new HopError("BAD_REQUEST", `Cannot use object storage ${JSON.stringify(shown)}: ${why}`);
}
