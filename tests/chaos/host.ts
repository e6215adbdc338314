/** What this machine lets a chaos case do, and the mounts that some of them make. */
import { existsSync, mkdtempSync, rmdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Runs a tool of the system to its end. Throws with its output where it fails. */
export async function tool(...command: string[]): Promise<string> {
  const child = Bun.spawn(command, { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`${command.join(" ")} ended with code ${code}: ${err.trim()}`);
  return out;
}

function whyNot(command: readonly string[], what: string): string | undefined {
  if (Bun.which(command[0] as string) === null) return `${command[0]} is not installed`;
  const { exitCode, stderr } = Bun.spawnSync([...command]);
  return exitCode === 0 ? undefined : `${what}: ${stderr.toString().trim().split("\n")[0]}`;
}

function tryMount(args: (folder: string) => string[], what: string): string | undefined {
  const folder = mkdtempSync(join(tmpdir(), "hop-mount-"));
  try {
    const reason = whyNot(["mount", ...args(folder)], what);
    if (reason === undefined) Bun.spawnSync(["umount", folder]);
    return reason;
  } finally {
    rmdirSync(folder);
  }
}

/** Why a small file system in memory can't be mounted, or undefined. */
export const whyNoTmpfs = () => tryMount((folder) => ["-t", "tmpfs", "-o", "size=1m", "none", folder], "may not mount a tmpfs");

/** Why an image can't be mounted, or undefined. */
export function whyNoLoop(): string | undefined {
  if (Bun.which("mkfs.ext4") === null) return "mkfs.ext4 is not installed";
  const folder = mkdtempSync(join(tmpdir(), "hop-loop-"));
  const image = join(folder, "image");
  try {
    const made = whyNot(["sh", "-c", `truncate -s 4M '${image}' && mkfs.ext4 -q -F '${image}'`], "can't make an image");
    return made ?? tryMount((at) => ["-o", "loop", image, at], "may not mount a loop file");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export const faketimeLibrary = ["/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "/usr/lib64/faketime/libfaketimeMT.so.1"].find(
  existsSync,
);

/** Why the wall clock of one process can't be set, or undefined. */
export const whyNoFaketime = () => (faketimeLibrary === undefined ? "libfaketime is not installed" : undefined);

/** A file system mounted on a folder of its own, unmounted at the end: when nothing uses it any more. */
export class Mount implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /** Mounts, and makes it known as `name`, a link: who clears the folder that holds the link leaves the mount alone. */
  static async make(name: string, ...args: string[]): Promise<Mount> {
    const path = mkdtempSync(join(tmpdir(), "hop-mount-"));
    try {
      await tool("mount", ...args, path);
    } catch (error) {
      rmdirSync(path);
      throw error;
    }
    symlinkSync(path, name);
    return new Mount(path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await tool("umount", this.path);
    rmdirSync(this.path);
  }
}
