/**
 * A SQLite file that is derived from the log, and so may be thrown away: it is set aside when it
 * is damaged, of another format or of another log, and filled again from the log.
 *
 * The log is the truth, so a commit need not reach the disk at once (synchronous = NORMAL): a
 * crash may take the last transactions away, and never half of one.
 */
import { Database } from "bun:sqlite";
import fs from "node:fs";
import { errorText, HopError } from "#core/base";

export interface DerivedOptions {
  /** A path, or ":memory:". */
  readonly path: string;
  /** The log that it is derived from. */
  readonly logId: string;
  /** Told when what was there is set aside, and why. */
  readonly warn: (message: string) => void;
}

export interface DerivedFormat {
  /** What it is, for messages: "checkpoint". */
  readonly what: string;
  /** Raised when tables or their meaning change. */
  readonly version: number;
  readonly schema: string;
  /** Looks at the opened file; text = why it can't be used. */
  readonly problem: (database: Database) => string | undefined;
}

const base = `CREATE TABLE IF NOT EXISTS origin (log_id TEXT NOT NULL) STRICT;`;

/** Throws `HopError` STORE_UNAVAILABLE where the file can't be read now: what it holds is not known then. */
export function openDerived(options: DerivedOptions, format: DerivedFormat): Database {
  const { path, warn } = options;
  if (path === ":memory:") return create(options, format);
  if (!fs.existsSync(path)) return create(options, format);
  const found = fs.existsSync(suspectOf(path)) ? "it was found damaged before" : tryOpen(options, format);
  if (typeof found !== "string") return found;
  setAside(path);
  warn(`The ${format.what} is built again from the log: ${path} was set aside, because ${found}`);
  return create(options, format);
}

/** Marks the file as not to be used: the next opening sets it aside. */
export function suspect(path: string): void {
  if (path !== ":memory:") fs.writeFileSync(suspectOf(path), "");
}

/** Beginnings of the codes by which SQLite says that the system refused it something. */
const passing = ["SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_NOMEM", "SQLITE_PROTOCOL"];

/**
 * What an error of SQLite says of its file. `damaged` only where all of it can be read: SQLite takes a disk that fails to
 * read (EIO) for a damaged file (source: SQLITE_IOERR_CORRUPTFS in its vdbe.c). `other` = the statement's own.
 */
export function sqliteFault(path: string, error: unknown): HopError | "damaged" | "other" {
  const code = String((error as { code?: unknown }).code);
  if (passing.some((each) => code.startsWith(each))) return unavailable(path, errorText(error), error);
  if (!code.startsWith("SQLITE_CORRUPT") && code !== "SQLITE_NOTADB") return "other";
  const why = path === ":memory:" ? undefined : whyUnreadable(path);
  return why === undefined ? "damaged" : unavailable(path, why, error);
}

const unavailable = (path: string, why: string, cause: unknown) =>
  new HopError("STORE_UNAVAILABLE", `Cannot use ${path} now: ${why}; nothing is known to be lost`, { cause });

/** Reads the database and its journal: what the system says where it can't. Takes as long as that, once for each fault. */
function whyUnreadable(path: string): string | undefined {
  const chunk = new Uint8Array(1 << 20);
  for (const each of [`${path}-wal`, path]) {
    if (!fs.existsSync(each)) continue;
    try {
      const fd = fs.openSync(each, "r");
      try {
        for (let at = 0, got = 1; got > 0; at += got) got = fs.readSync(fd, chunk, 0, chunk.length, at);
      } finally {
        fs.closeSync(fd);
      }
    } catch (error) {
      return errorText(error);
    }
  }
  return undefined;
}

const suspectOf = (path: string) => `${path}.suspect`;

/** Keeps one earlier file to look at: a crash loop does not fill the disk. */
function setAside(path: string): void {
  for (const end of ["-wal", "-shm"]) fs.rmSync(path + end, { force: true });
  if (fs.existsSync(path)) fs.renameSync(path, `${path}.set-aside`);
  fs.rmSync(suspectOf(path), { force: true });
}

function tryOpen({ path, logId }: DerivedOptions, format: DerivedFormat): Database | string {
  let database: Database | undefined;
  try {
    database = new Database(path, { readwrite: true, strict: true });
    const { user_version: version } = database.query("PRAGMA user_version").get() as { user_version: number };
    if (version !== format.version) return refuse(database, `it has format ${version}, this version writes ${format.version}`);
    const origin = (database.query("SELECT log_id FROM origin").get() as { log_id: string } | null)?.log_id;
    if (origin !== logId) return refuse(database, `it belongs to log ${origin}, not to ${logId}`);
    configure(database);
    const problem = format.problem(database);
    return problem === undefined ? database : refuse(database, problem);
  } catch (error) {
    const problem = refuse(database, `it can't be read: ${errorText(error)}`);
    const fault = sqliteFault(path, error);
    if (fault instanceof HopError) throw fault;
    return problem;
  }
}

function refuse(database: Database | undefined, problem: string): string {
  database?.close();
  return problem;
}

function create({ path, logId }: DerivedOptions, format: DerivedFormat): Database {
  const database = new Database(path, { create: true, readwrite: true, strict: true });
  configure(database);
  database.transaction(() => {
    database.run(base + format.schema);
    database.query("INSERT INTO origin VALUES (?)").run(logId);
    database.run(`PRAGMA user_version = ${format.version}`);
  })();
  return database;
}

function configure(database: Database): void {
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA synchronous = NORMAL");
  // Folding the journal back waits for the disk: seldom, and a few milliseconds then.
  database.run("PRAGMA wal_autocheckpoint = 4000");
}
