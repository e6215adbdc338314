/** V8 hosts for tests: the native parts are built when they are not current. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { bundleWorkflows } from "../../bundle/bundler.ts";
import { V8Host, type V8HostOptions } from "./v8-host.ts";

const root = join(import.meta.dir, "../../..");
let built = false;

export function buildOnce(): void {
  if (built) return;
  const result = Bun.spawnSync([process.execPath, join(root, "scripts/build-v8.ts")], { cwd: root, stdout: "pipe", stderr: "pipe" });
  if (result.exitCode !== 0) throw new Error(`Cannot build the V8 host: ${result.stderr.toString()}`);
  built = true;
}

/** Bundles of workflow sources, kept by hash as a source that hosts can ask. */
export class TestBundles {
  readonly #bytes = new Map<string, Uint8Array>();

  readonly source = async (hash: string): Promise<Uint8Array> => {
    const bytes = this.#bytes.get(hash);
    if (bytes === undefined) throw new Error(`Bundle ${hash} is not here`);
    return bytes;
  };

  add(bytes: Uint8Array, hash: string): string {
    this.#bytes.set(hash, bytes);
    return hash;
  }

  async ofFile(file: string): Promise<string> {
    const { bytes, hash } = await bundleWorkflows({ files: [file] });
    return this.add(bytes, hash);
  }

  /** Bundles a project given as text; `wf.ts` holds the workflows. It can import this repository's packages. */
  async ofText(files: Record<string, string>): Promise<string> {
    const folder = projectFolder(files);
    try {
      return await this.ofFile(join(folder, "wf.ts"));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}

/** A folder with these files, beside the packages of this repository. The caller removes it. */
export function projectFolder(files: Record<string, string>): string {
  const folder = mkdtempSync(join(tmpdir(), "hop-project-"));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  return folder;
}

export function openHost(options: Omit<V8HostOptions, "source">, bundles: TestBundles): V8Host {
  buildOnce();
  return new V8Host({ source: bundles.source, ...options });
}
