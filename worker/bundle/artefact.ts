/**
 * A bundle: all the code of a set of workflows as one run of bytes, named by its SHA-256.
 *
 * It is JSON text with a fixed order of fields. `dependencies` is code from packages, which the
 * host evaluates once for all runs; `main` is the workflow's own code, evaluated for each run.
 */
import { createHash } from "node:crypto";

const format = "hopskip-v8/1";

export interface Artefact {
  /** Names of the exported workflows, sorted. */
  readonly workflows: readonly string[];
  /** Script whose value is `{ shared, load }`. */
  readonly dependencies: string;
  /** Script whose value is the function that evaluates the workflow's modules. */
  readonly main: string;
  /** Where positions in `main` come from. */
  readonly map: SourceMap;
}

/** The part of a version 3 source map that a stack trace needs. */
export interface SourceMap {
  readonly sources: readonly string[];
  readonly mappings: string;
}

export class ArtefactError extends Error {
  override name = "ArtefactError";
}

export function encodeArtefact(artefact: Artefact): Uint8Array {
  const { workflows, dependencies, main, map } = artefact;
  const text = JSON.stringify({ format, workflows, dependencies, main, map: { sources: map.sources, mappings: map.mappings } });
  return new TextEncoder().encode(text);
}

/** Throws `ArtefactError` for bytes that are no bundle of this format. */
export function decodeArtefact(bytes: Uint8Array): Artefact {
  let value: Partial<Artefact> & { format?: unknown };
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as typeof value;
  } catch (cause) {
    throw new ArtefactError(`Cannot read the bundle: its ${bytes.length} bytes are not JSON`, { cause });
  }
  if (value?.format !== format)
    throw new ArtefactError(`Cannot read the bundle: its format is ${JSON.stringify(value?.format)}, want "${format}"`);
  const { workflows, dependencies, main, map } = value;
  const isText = (list: unknown): list is string[] => Array.isArray(list) && list.every((item) => typeof item === "string");
  if (
    !isText(workflows) ||
    typeof dependencies !== "string" ||
    typeof main !== "string" ||
    !isText(map?.sources) ||
    typeof map.mappings !== "string"
  ) {
    throw new ArtefactError("Cannot read the bundle: a field is missing or of the wrong type");
  }
  return { workflows, dependencies, main, map };
}

/** Hex SHA-256: the name of a bundle. */
export function artefactHash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
