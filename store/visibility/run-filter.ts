/**
 * The filter of a list of runs, `customer = 'ann' AND total >= 100`, to SQL over the index of runs.
 *
 * Names and values never become SQL text: they go in as parameters. A name that is no column of the
 * index is one that workflows set with `searchable()`.
 */
import { HopError } from "#core/base";
import { runStatusNames } from "#proto";

export interface Condition {
  readonly sql: string;
  readonly values: readonly (string | number)[];
}

type Literal = string | number | boolean;
type Comparison = "=" | "!=" | "<" | "<=" | ">" | ">=" | "LIKE";

interface Token {
  readonly kind: "word" | "name" | "text" | "number" | "sign" | "end";
  readonly text: string;
  readonly at: number;
}

/** Longest filter, and its deepest nesting: both bound what one list costs. */
const charsMax = 4096;
const depthMax = 32;
const valuesMax = 200;

const pattern =
  /\s*(?:(?<word>[A-Za-z_][\w.-]*)|"(?<name>[^"]*)"|'(?<text>(?:[^']|'')*)'|(?<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?<sign><=|>=|!=|<>|[=<>(),]))/y;

function refuse(at: number, problem: string): never {
  throw new HopError("BAD_REQUEST", `Cannot list runs: the query has a fault at character ${at + 1}: ${problem}`);
}

function tokens(query: string): Token[] {
  const found: Token[] = [];
  pattern.lastIndex = 0;
  for (let at = 0; query.slice(at).trim() !== ""; at = pattern.lastIndex) {
    pattern.lastIndex = at;
    const match = pattern.exec(query);
    const start = at + (query.slice(at).length - query.slice(at).trimStart().length);
    if (match === null) refuse(start, `${JSON.stringify(query.slice(start, start + 10))} is no name, value or sign; texts stand in '…'`);
    const [kind, text] = Object.entries(match.groups ?? {}).find(([, value]) => value !== undefined) as [Token["kind"], string];
    found.push({ kind, text: kind === "text" ? text.replaceAll("''", "'") : text, at: start });
  }
  found.push({ kind: "end", text: "", at: query.length });
  return found;
}

/** Throws `HopError` BAD_REQUEST that names the place of the fault. */
export function filterOf(query: string): Condition {
  if (query.length > charsMax) refuse(charsMax, `it has ${query.length} characters, at most ${charsMax} are allowed`);
  return new Parser(tokens(query)).whole();
}

class Parser {
  private readonly tokens: readonly Token[];
  private next = 0;
  private depth = 0;
  private readonly values: (string | number)[] = [];

  constructor(tokens: readonly Token[]) {
    this.tokens = tokens;
  }

  whole(): Condition {
    const sql = this.either();
    const { kind, at } = this.peek();
    if (kind !== "end") refuse(at, "want AND, OR or its end");
    return { sql, values: this.values };
  }

  private peek(): Token {
    return this.tokens[this.next] as Token;
  }

  private is(word: string): boolean {
    const { kind, text } = this.peek();
    return (kind === "word" && text.toUpperCase() === word) || (kind === "sign" && text === word);
  }

  private took(word: string): boolean {
    const is = this.is(word);
    if (is) this.next++;
    return is;
  }

  private demand(word: string): void {
    if (!this.took(word)) refuse(this.peek().at, `want ${word}`);
  }

  private either(): string {
    const parts = [this.both()];
    while (this.took("OR")) parts.push(this.both());
    return parts.length === 1 ? (parts[0] as string) : `(${parts.join(" OR ")})`;
  }

  private both(): string {
    const parts = [this.one()];
    while (this.took("AND")) parts.push(this.one());
    return parts.length === 1 ? (parts[0] as string) : `(${parts.join(" AND ")})`;
  }

  private one(): string {
    if (++this.depth > depthMax) refuse(this.peek().at, `it is nested deeper than ${depthMax}`);
    const sql = this.took("NOT") ? `NOT ${this.one()}` : this.is("(") ? this.grouped() : this.comparison();
    this.depth--;
    return sql;
  }

  private grouped(): string {
    this.demand("(");
    const sql = this.either();
    this.demand(")");
    return `(${sql})`;
  }

  private comparison(): string {
    const { kind, text, at } = this.peek();
    if (kind !== "word" && kind !== "name") refuse(at, "want a name, NOT or (");
    this.next++;
    const field = fieldOf(text);
    if (this.took("IS")) {
      const not = this.took("NOT") ? "NOT " : "";
      this.demand("NULL");
      return `(${not}${field.isNull((value) => this.put(value))})`;
    }
    const isNot = this.took("NOT");
    if (this.took("IN")) return `(${isNot ? "NOT " : ""}(${this.list(field)}))`;
    if (this.took("LIKE")) return `(${isNot ? "NOT " : ""}${this.compare(field, "LIKE")})`;
    if (isNot) refuse(this.peek().at, "want IN or LIKE behind NOT");
    const sign = this.peek();
    const comparison = sign.text === "<>" ? "!=" : sign.text;
    if (sign.kind !== "sign" || !["=", "!=", "<", "<=", ">", ">="].includes(comparison))
      refuse(sign.at, "want =, !=, <, <=, >, >=, IN, LIKE or IS");
    this.next++;
    return `(${this.compare(field, comparison as Comparison)})`;
  }

  private list(field: Field): string {
    const parts: string[] = [];
    this.demand("(");
    do parts.push(this.compare(field, "="));
    while (this.took(","));
    this.demand(")");
    return parts.join(" OR ");
  }

  private compare(field: Field, comparison: Comparison): string {
    const { at } = this.peek();
    const literal = this.literal();
    if (comparison === "LIKE" && typeof literal !== "string") refuse(at, "want a text behind LIKE, such as 'ann%'");
    const sql = field.compare(comparison, literal, (value) => this.put(value));
    return sql ?? refuse(at, `${field.wants}, got ${JSON.stringify(literal)}`);
  }

  private literal(): Literal {
    const { kind, text, at } = this.peek();
    this.next++;
    if (kind === "text") return text;
    if (kind === "number") return Number(text);
    const word = kind === "word" ? text.toUpperCase() : "";
    if (word === "TRUE" || word === "FALSE") return word === "TRUE";
    return refuse(at, "want a value: a 'text', a number, TRUE or FALSE");
  }

  private put(value: string | number): string {
    this.values.push(value);
    if (this.values.length > valuesMax) refuse(this.peek().at, `it has more than ${valuesMax} values`);
    return "?";
  }
}

type Put = (value: string | number) => string;

interface Field {
  /** What it is compared with, for messages. */
  readonly wants: string;
  compare(comparison: Comparison, literal: Literal, put: Put): string | undefined;
  isNull(put: Put): string;
}

const textField = (column: string): Field => ({
  wants: `want a 'text' for ${column}`,
  compare: (comparison, literal, put) => (typeof literal === "string" ? `${column} ${comparison} ${put(literal)}` : undefined),
  isNull: () => "FALSE",
});

const timeField = (name: string, column: string): Field => ({
  wants: `want a time for ${name}, such as '2026-01-31' or '2026-01-31T08:00:00Z'`,
  compare(comparison, literal, put) {
    const ms = timeOf(literal);
    return ms === undefined || comparison === "LIKE" ? undefined : `(${column} > 0 AND ${column} ${comparison} ${put(ms)})`;
  },
  isNull: () => `${column} = 0`,
});

const statusField: Field = {
  wants: `want = or != and a status: ${Object.values(runStatusNames).join(", ")}`,
  compare(comparison, literal, put) {
    const found = Object.entries(runStatusNames).find(([, name]) => name === literal);
    return found === undefined || (comparison !== "=" && comparison !== "!=") ? undefined : `status ${comparison} ${put(Number(found[0]))}`;
  },
  isNull: () => "FALSE",
};

const columns: Readonly<Record<string, Field>> = {
  type: textField("type"),
  instance: textField("instance"),
  run: textField("run"),
  note: textField("note"),
  status: statusField,
  bundle: {
    wants: "want the hex of a bundle's SHA-256, or its beginning with LIKE 'ab%'",
    compare: (comparison, literal, put) => (typeof literal === "string" ? `lower(hex(bundle)) ${comparison} ${put(literal)}` : undefined),
    isNull: () => "FALSE",
  },
  started: timeField("started", "started_ms"),
  closed: timeField("closed", "closed_ms"),
};

const fieldOf = (name: string): Field => (Object.hasOwn(columns, name) ? (columns[name] as Field) : searchableField(name));

/** Of another type than the literal it is neither equal nor unequal: no comparison holds. */
function searchableField(name: string): Field {
  const path = `$.${JSON.stringify(name)}`;
  const wants = "want a 'text', a number, a time, TRUE or FALSE";
  const typed = (put: Put, at: string, types: string, comparison: Comparison, value: string | number) =>
    `(json_type(searchable, ${put(at)}) ${types} AND json_extract(searchable, ${put(at)}) ${comparison} ${put(value)})`;
  return {
    wants,
    compare(comparison, literal, put) {
      if (typeof literal === "number") return typed(put, path, "IN ('integer', 'real')", comparison, literal);
      if (typeof literal === "boolean") {
        if (comparison !== "=" && comparison !== "!=") return undefined;
        return `(json_type(searchable, ${put(path)}) = ${put(String(literal === (comparison === "=")))})`;
      }
      const text = typed(put, path, "= 'text'", comparison, literal);
      const ms = comparison === "LIKE" ? undefined : timeOf(literal);
      return ms === undefined ? text : `(${text} OR ${typed(put, `${path}.time`, "= 'integer'", comparison, ms)})`;
    },
    isNull: (put) => `json_type(searchable, ${put(path)}) IS NULL`,
  };
}

/** Milliseconds since 1970 of an ISO date or time, UTC where it names no zone. */
function timeOf(literal: Literal): number | undefined {
  if (typeof literal !== "string" || !/^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)?)?$/.test(literal))
    return undefined;
  const iso = literal.replace(" ", "T");
  const ms = Date.parse(iso.includes("T") && !/(?:Z|[+-]\d\d:\d\d)$/.test(iso) ? `${iso}Z` : iso);
  return Number.isNaN(ms) ? undefined : ms;
}
