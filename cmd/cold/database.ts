/**
 * DuckDB over sealed segments, shut off from everything else: in memory, without extensions, with no
 * other file to read or write, its settings locked before the query is looked at.
 */
import type { DuckDBConnection, DuckDBInstance, DuckDBPreparedStatement, DuckDBResult } from "@duckdb/node-api";
import { errorText } from "#core/base";
import { CommandError, exit, UsageError } from "../failure.ts";
import { bytesText } from "../size.ts";
import { type Cell, cellsOf } from "./cells.ts";
import type { DuckDB } from "./duckdb.ts";
import { sqlText } from "./event-filter.ts";
import { eventJson } from "./event-json.ts";
import { decodeFunction, viewStatements } from "./views.ts";

export interface DatabaseOptions {
  readonly duckdb: DuckDB;
  /** Segments: the only files that can be read. */
  readonly paths: readonly string[];
  /** Over the columns of a segment. */
  readonly condition: string;
  readonly memoryBytesMax: number;
}

export interface QueryOptions {
  /** No more rows than this are made. */
  readonly rowsMax: number | undefined;
  readonly signal: AbortSignal;
}

export interface Answer {
  readonly columns: readonly string[];
  /** In chunks; to be read to the end. */
  readonly rows: AsyncIterable<Cell[][]>;
}

/** What begins a statement that only reads. */
const readers = ["SELECT", "WITH", "FROM", "VALUES", "TABLE", "DESCRIBE", "DESC", "SUMMARIZE", "SHOW"];

export class ColdDatabase implements AsyncDisposable {
  private readonly options: DatabaseOptions;
  private readonly instance: DuckDBInstance;
  private readonly connection: DuckDBConnection;
  /** What still runs when it is closed. */
  private running: Promise<unknown> = Promise.resolve();

  private constructor(options: DatabaseOptions, instance: DuckDBInstance, connection: DuckDBConnection) {
    this.options = options;
    this.instance = instance;
    this.connection = connection;
  }

  static async open(options: DatabaseOptions): Promise<ColdDatabase> {
    const { duckdb, memoryBytesMax } = options;
    const instance = await duckdb.DuckDBInstance.create(":memory:", {
      autoinstall_known_extensions: "false",
      autoload_known_extensions: "false",
      allow_community_extensions: "false",
      allow_unsigned_extensions: "false",
      allow_persistent_secrets: "false",
      memory_limit: `${Math.ceil(memoryBytesMax / 1024)}KiB`,
      // Nothing is written to disk, what does not fit into memory neither.
      temp_directory: "",
    });
    const connection = await instance.connect();
    const database = new ColdDatabase(options, instance, connection);
    await database.prepareViews();
    return database;
  }

  /** Rejects with `UsageError` where the text is not one statement that reads the views. */
  async query(sql: string, { rowsMax, signal }: QueryOptions): Promise<Answer> {
    signal.addEventListener("abort", this.interrupt);
    try {
      const statement = await this.statement(sql, rowsMax);
      signal.throwIfAborted();
      const result = await this.tracked(statement.stream());
      return { columns: result.deduplicatedColumnNames(), rows: this.rowsOf(result, signal) };
    } catch (error) {
      throw this.refusal(error);
    }
  }

  /** Waits for what still runs: its threads call back into this one. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.interrupt();
    await this.running.catch(() => {});
    this.connection.closeSync();
    this.instance.closeSync();
  }

  private readonly interrupt = () => this.connection.interrupt();

  private async *rowsOf(result: DuckDBResult, signal: AbortSignal): AsyncGenerator<Cell[][]> {
    const cells = result.columnTypes().map((type) => cellsOf(this.options.duckdb, type));
    try {
      for (;;) {
        signal.throwIfAborted();
        const chunk = await this.tracked(result.fetchChunk());
        if (chunk === null || chunk.rowCount === 0) return;
        yield chunk.getRows().map((row) => row.map((value, i) => (cells[i] as (typeof cells)[number])(value)));
      }
    } catch (error) {
      throw this.refusal(error);
    }
  }

  private async prepareViews(): Promise<void> {
    const { paths, condition } = this.options;
    this.connection.registerScalarFunction(this.decoder());
    for (const statement of viewStatements(paths, condition)) await this.connection.run(statement);
    for (const setting of [
      `allowed_paths = [${paths.map(sqlText).join(", ")}]`,
      "enable_external_access = false",
      "lock_configuration = true",
    ])
      await this.connection.run(`SET ${setting}`);
  }

  private decoder() {
    const { DuckDBScalarFunction, BIGINT, BLOB, VARCHAR, DuckDBBlobValue } = this.options.duckdb;
    return DuckDBScalarFunction.create({
      name: decodeFunction,
      parameterTypes: [BIGINT, BLOB],
      returnType: VARCHAR,
      mainFunction: (info, input, output) => {
        try {
          const [kinds, payloads] = [input.getColumnValues(0), input.getColumnValues(1)];
          for (let row = 0; row < input.rowCount; row++) {
            const payload = payloads[row];
            output.setItem(row, payload instanceof DuckDBBlobValue ? eventJson(Number(kinds[row]), payload.bytes) : null);
          }
          output.flush();
        } catch (error) {
          info.setError(`${decodeFunction}: ${errorText(error)}`);
        }
      },
    });
  }

  /** The query, which becomes a part of one that only reads and ends at `rowsMax`. */
  private async statement(sql: string, rowsMax: number | undefined): Promise<DuckDBPreparedStatement> {
    const { StatementType } = this.options.duckdb;
    const first = firstWord(sql);
    if (!readers.includes(first)) throw onlyReads(first === "" ? "an empty query" : first);
    const { count } = await this.connection.extractStatements(sql);
    if (count !== 1) throw onlyReads(`${count} statements at once`);
    // On lines of its own: a comment at the end of the query ends there.
    const text = `SELECT * FROM (\n${sql.replace(/;\s*$/, "")}\n) ${rowsMax === undefined ? "" : `LIMIT ${rowsMax}`}`;
    const extracted = await this.connection.extractStatements(text);
    const statement = await extracted.prepare(0);
    if (extracted.count !== 1 || statement.statementType !== StatementType.SELECT) throw onlyReads(first);
    return statement;
  }

  private tracked<T>(work: Promise<T>): Promise<T> {
    this.running = work;
    return work;
  }

  /** DuckDB's own words for what is wrong with the query, and what to do. */
  private refusal(error: unknown): unknown {
    if (error instanceof CommandError || !(error instanceof Error)) return error;
    const message = error.message.replace(/^Failed to \w+ \w+: /, "");
    const [, kind = ""] = /^([A-Z][\w -]*?) Error: /.exec(message) ?? [];
    if (kind === "INTERRUPT") return error;
    const file = /^Permission Error: Cannot access (?:file|directory) ("[^"]*")/.exec(message)?.[1];
    if (file !== undefined) {
      return new UsageError(`Cannot run the query: it wants ${file}, and a cold query reads sealed segments only`, {
        next: askViews,
        cause: error,
      });
    }
    if (kind === "Out of Memory")
      return new CommandError(exit.failed, `Cannot run the query: it needs more than ${bytesText(this.options.memoryBytesMax)} of memory`, {
        next: "allow more with --memory, or narrow the query with --since, --until, --namespace or --run",
        cause: error,
      });
    // Its first line is the one put before it.
    const text = message.replace(/^LINE (\d+):/gm, (_all, line: string) => `LINE ${Math.max(1, Number(line) - 1)}:`).trimEnd();
    return new UsageError(`Cannot run the query: ${text}`, { next: askViews, cause: error });
  }
}

const askViews = "ask the views events and runs; see their columns with `DESCRIBE events`";

const onlyReads = (what: string) =>
  new UsageError(`Cannot run ${what}: a cold query is one statement that only reads`, {
    next: "write one SELECT over the views events and runs; keep its rows with -o jsonl or --csv",
  });

/** In capitals; comments and opening brackets before it are passed over. */
function firstWord(sql: string): string {
  const rest = sql.replace(/^(?:\s|\(|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)+/, "");
  return /^\w+/.exec(rest)?.[0].toUpperCase() ?? "";
}
