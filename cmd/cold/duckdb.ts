/** DuckDB, loaded when a command first needs it: its library has 70 MB. */
import { errorText } from "#core/base";
import { extractAssets } from "../assets/assets.ts";
import { CommandError, exit } from "../failure.ts";
import { addon } from "./addon.ts";

export type DuckDB = typeof import("@duckdb/node-api");

/** Extracts it first where this version never ran here. Rejects with `AssetError`, or where the system does not load it. */
export async function loadDuckDB(): Promise<DuckDB> {
  addon.path = (await extractAssets(["duckdb"])).duckdb;
  try {
    return await import("@duckdb/node-api");
  } catch (error) {
    throw new CommandError(exit.failed, `Cannot load DuckDB from ${addon.path}: ${errorText(error)}`, {
      next: "name a folder in HOP_CACHE from which libraries may be loaded: a file system that is mounted noexec is none",
      cause: error,
    });
  }
}
