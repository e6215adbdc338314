/** `hop sql --cold` in this process, with its output caught. */

import { type SqlOptions, sql } from "../../cmd/command/sql.ts";
import { Output } from "../../cmd/output.ts";
import { bufferSink } from "../../cmd/sink-fixture.ts";

export interface Asked {
  readonly code: number;
  readonly out: string;
  /** Talk, with an error's message and advice. */
  readonly err: string;
}

export interface Surroundings {
  readonly interrupt?: AbortSignal;
  readonly env?: Readonly<Record<string, string>>;
}

export async function ask(
  query: string,
  options: SqlOptions,
  { interrupt = new AbortController().signal, env = {} }: Surroundings = {},
): Promise<Asked> {
  const [out, err] = [bufferSink(), bufferSink()];
  const output = new Output({ format: options.output, color: false, command: "sql", out, err, env: {} });
  let code: number;
  try {
    code = await sql({ output, interrupt, env }, { cold: true, ...options }, query);
  } catch (error) {
    code = output.fail(error);
  }
  return { code, out: out.text(), err: err.text() };
}

/** The rows that a query has. Throws with what it says where it fails. */
export async function rowsOf<Row = Record<string, unknown>>(query: string, options: SqlOptions): Promise<Row[]> {
  const { code, out, err } = await ask(query, { ...options, output: "json" });
  if (code !== 0) throw new Error(`${query} ended with code ${code}: ${err}`);
  return JSON.parse(out) as Row[];
}
