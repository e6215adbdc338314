/**
 * Workflow code of a test environment: bundles as they would be deployed, and the host that runs
 * them. Environments of one test share it, since a bundle is evaluated once.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { toHex } from "#core/base";
import { artefactHash, bundleWorkflows, decodeArtefact, VmHost } from "#worker/guest";
import type { LogLine, WorkflowSource } from "./options.ts";

export class Code {
  /** Hash of the bundle that exports a workflow, by its type. */
  readonly types = new Map<string, Uint8Array>();
  readonly host: VmHost;
  onLog: (line: LogLine) => void = () => {};
  private readonly bundles = new Map<string, Uint8Array>();
  private keys = 0;

  constructor() {
    this.host = new VmHost({
      source: async (hash) => this.bundle(hash),
      kernel: kernelText(),
      onLog: (line) => this.onLog(line),
    });
  }

  readonly nextKey = (): number => ++this.keys;
  readonly blob = async (sha256: Uint8Array): Promise<Uint8Array> => this.bundle(toHex(sha256));

  /** Throws `TypeError` where two bundles export a workflow of one name. */
  add(bytes: Uint8Array): void {
    const hash = artefactHash(bytes);
    this.bundles.set(hash, bytes);
    for (const type of decodeArtefact(bytes).workflows) {
      if (this.types.has(type)) throw new TypeError(`Cannot test with two workflows "${type}": two files export it`);
      this.types.set(type, Buffer.from(hash, "hex"));
    }
  }

  /** As `hashOf`; undefined where there is none. */
  bundleOf(type: string): Uint8Array | undefined {
    return this.types.get(type);
  }

  /** Hash of the code of a type. Throws `TypeError` where there is none. */
  hashOf(type: string): Uint8Array {
    const hash = this.bundleOf(type);
    if (hash !== undefined) return hash;
    throw new TypeError(
      `There is no workflow ${JSON.stringify(type)}: the workflow files export ${[...this.types.keys()].sort().join(", ")}`,
    );
  }

  private bundle(hash: string): Uint8Array {
    const bytes = this.bundles.get(hash);
    if (bytes === undefined) throw new Error(`Bundle ${hash.slice(0, 12)} is not in this test environment`);
    return bytes;
  }
}

export async function loadCode(source: WorkflowSource): Promise<Code> {
  const code = new Code();
  if (source instanceof Uint8Array) code.add(source);
  else {
    const files = (typeof source === "string" || source instanceof URL ? [source] : source).map(pathOf);
    for (const file of files) code.add(await bundle(file));
  }
  return code;
}

const pathOf = (file: string | URL): string => (file instanceof URL || file.startsWith("file:") ? fileURLToPath(file) : resolve(file));

/** The bundler is Bun's; elsewhere `hop` bundles, which has it inside. */
async function bundle(file: string): Promise<Uint8Array> {
  if (!existsSync(file)) throw new TypeError(`Cannot test workflow file ${file}: there is no such file`);
  return "Bun" in globalThis ? (await bundleWorkflows({ files: [file] })).bytes : bundleByHop(file);
}

function bundleByHop(file: string): Uint8Array {
  const hop = process.env.HOP_PATH ?? "hop";
  const folder = mkdtempSync(join(tmpdir(), "hop-testing-"));
  const out = join(folder, "bundle");
  try {
    execFileSync(hop, ["bundle", file, "--out", out], { stdio: ["ignore", "ignore", "pipe"], encoding: "utf8" });
    return readFileSync(out);
  } catch (error) {
    const { code, stderr = "" } = error as { code?: string; stderr?: string };
    if (code !== "ENOENT") throw new Error(stderr.trim() || String(error), { cause: error });
    const advice = "put it into PATH, name it in HOP_PATH, or give TestEnvironment.create the bytes that `hop bundle` wrote";
    throw new Error(`Cannot bundle ${file}: outside of Bun that is done by the executable ${hop}, which was not found; ${advice}`, {
      cause: error,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** In the package it lies beside this module, in this repository where it is built. */
function kernelText(): string {
  const places = ["./guest-kernel.js", "../../../dist/v8/kernel.js"].map((place) => new URL(place, import.meta.url));
  const found = places.find((place) => existsSync(place));
  if (found === undefined)
    throw new Error("The guest kernel of @hopskip/testing is missing: install the package again, or build it with `npm run build`");
  return readFileSync(found, "utf8");
}
