/** The user's own files: where workflows and activities are looked for when none are named. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { UsageError } from "../failure.ts";
import { faultText } from "../input.ts";

const notWorkflows = /(\.test|\.spec|\.d)\.[mc]?tsx?$|^activities\.[mc]?[jt]s$/;
const isScript = /\.[mc]?tsx?$/;
const activityFiles = ["activities.ts", "activities.mts", "activities.js", "activities.mjs", "activities/index.ts"];

/** Files of a folder, and of its folder `workflows`, that export durable workflows. */
export function findWorkflowFiles(folder: string): string[] {
  const found: string[] = [];
  for (const at of [folder, join(folder, "workflows")]) {
    if (!existsSync(at) || !statSync(at).isDirectory()) continue;
    for (const name of readdirSync(at).sort()) {
      if (isScript.test(name) && !notWorkflows.test(name) && hasWorkflow(join(at, name))) found.push(join(at, name));
    }
  }
  return found;
}

/** A quick look; the bundler says for certain. */
function hasWorkflow(path: string): boolean {
  const text = readFileSync(path, "utf8");
  return text.includes("@hopskip/runtime") && /\bdurable\s*[<(]/.test(text) && /\bexport\b/.test(text);
}

/** Absolute paths of files that exist. Throws `UsageError`. */
export function existingFiles(paths: readonly string[], what: string): string[] {
  return paths.map((path) => {
    const absolute = resolve(path);
    let isFile = false;
    try {
      isFile = statSync(absolute).isFile();
    } catch (error) {
      throw new UsageError(`Cannot use ${what} ${path}: ${faultText(error)}`, { cause: error });
    }
    if (!isFile) throw new UsageError(`Cannot use ${what} ${path}: it is no file`);
    return absolute;
  });
}

/** The activity files beside workflow files, each once. */
export function activityFilesBeside(workflowFiles: readonly string[], folder: string): string[] {
  const folders = new Set([folder, ...workflowFiles.map((file) => dirname(file))]);
  const found = new Set<string>();
  for (const at of folders) {
    const name = activityFiles.find((candidate) => existsSync(join(at, candidate)));
    if (name !== undefined) found.add(join(at, name));
  }
  return [...found];
}
