/** Tables for people: columns as wide as their widest cell, values that can't steer the terminal. */
import { cut, type Paint, visible, widthOf } from "./terminal.ts";

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string;
  readonly align?: "left" | "right";
  /** Painted after it is padded. */
  readonly paint?: (text: string, row: Row) => string;
  /** On a terminal that is too narrow this column is shortened. */
  readonly shrink?: boolean;
  /** Left out where shortening is not enough, the last such column first. */
  readonly drop?: boolean;
}

export interface TableOptions {
  readonly paint: Paint;
  /** Width to keep to; undefined = as wide as it gets (a pipe loses nothing). */
  readonly columns: number | undefined;
}

const gap = "  ";
const shrunkMin = 12;

/** The table's lines, each ended by a line feed. */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], options: TableOptions): string {
  const text = drawn(columns, rows, options);
  if (text !== undefined) return text;
  const dropped = columns.findLastIndex((column) => column.drop === true);
  return table(
    columns.filter((_column, i) => i !== dropped),
    rows,
    options,
  );
}

/** Undefined where it does not fit and a column may be left out. */
function drawn<Row>(columns: readonly Column<Row>[], rows: readonly Row[], options: TableOptions): string | undefined {
  const cells = rows.map((row) => columns.map((column) => visible(column.value(row))));
  const widths = columns.map((column, i) => Math.max(widthOf(column.title), ...cells.map((line) => widthOf(line[i] as string))));
  if (!fit(columns, widths, options.columns) && columns.some((column) => column.drop === true)) return undefined;
  const head = columns.map((column, i) => options.paint("bold", pad(column.title, widths[i] as number, column.align)));
  const lines = [join(head)];
  for (const [at, line] of cells.entries()) {
    const row = rows[at] as Row;
    lines.push(
      join(
        line.map((cell, i) => {
          const column = columns[i] as Column<Row>;
          const padded = pad(cell, widths[i] as number, column.align);
          return column.paint === undefined ? padded : column.paint(padded, row);
        }),
      ),
    );
  }
  return `${lines.join("\n")}\n`;
}

/** Takes from the columns that may shrink, the widest first, what the terminal lacks. False where that is not enough. */
function fit<Row>(columns: readonly Column<Row>[], widths: number[], available: number | undefined): boolean {
  if (available === undefined) return true;
  let over = widths.reduce((sum, width) => sum + width, 0) + gap.length * (widths.length - 1) - available;
  while (over > 0) {
    let widest = -1;
    for (const [i, column] of columns.entries()) {
      if (column.shrink === true && (widths[i] as number) > shrunkMin && (widest < 0 || (widths[i] as number) > (widths[widest] as number)))
        widest = i;
    }
    if (widest < 0) return false;
    widths[widest] = (widths[widest] as number) - 1;
    over -= 1;
  }
  return true;
}

function pad(text: string, width: number, align: "left" | "right" = "left"): string {
  const short = cut(text, width);
  const space = " ".repeat(Math.max(0, width - widthOf(short)));
  return align === "right" ? space + short : short + space;
}

// Trailing blanks would show where a terminal wraps; colour codes may follow them.
// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a colour code
const trailing = / +((?:\u001b\[\d+m)*)$/;
const join = (cells: readonly string[]) => cells.join(gap).replace(trailing, "$1");
