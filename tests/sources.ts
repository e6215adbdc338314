/** The repository's own files, as the house rules look at them. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Glob } from "bun";

export const root = fileURLToPath(new URL("..", import.meta.url));

/** Folders of the product, each of them a layer. */
export const topFolders = ["proto", "core", "store", "sdk", "worker", "node", "cmd"] as const;

const skipped = /(^|\/)(node_modules|dist|coverage|\.git|\.hop)\//;

/** Files that match a glob, as paths from the root, sorted. */
export function filesLike(pattern: string): string[] {
  return [...new Glob(pattern).scanSync({ cwd: root, dot: true })].filter((file) => !skipped.test(file)).sort();
}

export const isGenerated = (file: string) => file.startsWith("proto/gen/");
export const isTest = (file: string) => /\.(test|suite)\.tsx?$|-fixture\.ts$/.test(file) || file.startsWith("tests/");
/** Runs inside the sandbox: plain script in a realm of its own, reached by no import. */
export const isGuest = (file: string) => file.startsWith("worker/host/v8/kernel/");

/** TypeScript of the product, without tests, generated code and guest code. */
export const productFiles = filesLike(`{${topFolders.join(",")}}/**/*.{ts,tsx}`).filter(
  (f) => !isGenerated(f) && !isTest(f) && !isGuest(f),
);

export const readSource = (file: string) => Bun.file(join(root, file)).text();

/** Text without comments. Blunt: it knows no strings, so keep `//` after a space out of them. */
export const withoutComments = (text: string) => text.replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, "$1");

export interface Import {
  readonly specifier: string;
  /** Erased when compiled: it can't close a cycle at run time. */
  readonly typeOnly: boolean;
}

/** Imports and re-exports of a file. The formatter forces double quotes, so none is missed. */
export function importsOf(code: string): Import[] {
  const found = code.matchAll(/(?:\b(import|export)\s+(type\s+)?[\w*{][^"';]*?\bfrom\s*|\bimport\s*\(?\s*)"([^"]+)"/g);
  return [...found].map(([, , typeWord, specifier]) => ({ specifier: specifier as string, typeOnly: typeWord !== undefined }));
}
