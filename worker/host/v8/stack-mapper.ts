/** Positions in bundled code, turned back into positions in the files they came from. */
import type { FailureInit } from "#proto";
import type { SourceMap } from "../../bundle/artefact.ts";

/** One piece of generated code on its line: column, then source, line and column, all from 0. */
type Segment = readonly [column: number, source: number, line: number, sourceColumn: number];

const position = /\bworkflow\.js:(\d+):(\d+)/g;
const digits = new Map([..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].map((digit, value) => [digit, value]));

interface Mapped {
  readonly artefact: { readonly map: SourceMap };
}

export class StackMapper {
  readonly #lines = new WeakMap<Mapped["artefact"], Segment[][]>();

  /** Changes the stacks of a failure and of its causes. */
  failure(bundle: Mapped, failure: FailureInit): void {
    for (let at: FailureInit | undefined = failure; at !== undefined; at = at.cause) if (at.stack) at.stack = this.text(bundle, at.stack);
  }

  text(bundle: Mapped, text: string): string {
    return text.replace(position, (found, line: string, column: string) => this.#find(bundle, Number(line) - 1, Number(column) - 1) ?? found);
  }

  #find({ artefact }: Mapped, line: number, column: number): string | undefined {
    let lines = this.#lines.get(artefact);
    if (lines === undefined) {
      lines = decodeMappings(artefact.map.mappings);
      this.#lines.set(artefact, lines);
    }
    const segment = lines[line]?.findLast((candidate) => candidate[0] <= column);
    if (segment === undefined) return undefined;
    return `${artefact.map.sources[segment[1]] ?? "?"}:${segment[2] + 1}:${segment[3] + 1}`;
  }
}

/** Lines of the version 3 `mappings` field. */
export function decodeMappings(mappings: string): Segment[][] {
  let source = 0;
  let line = 0;
  let sourceColumn = 0;
  return mappings.split(";").map((text) => {
    let column = 0;
    const segments: Segment[] = [];
    for (const part of text === "" ? [] : text.split(",")) {
      const deltas = decodeVlq(part);
      column += deltas[0] ?? 0;
      if (deltas.length < 4) continue;
      source += deltas[1]!;
      line += deltas[2]!;
      sourceColumn += deltas[3]!;
      segments.push([column, source, line, sourceColumn]);
    }
    return segments;
  });
}

function decodeVlq(text: string): number[] {
  const values: number[] = [];
  let value = 0;
  let shift = 0;
  for (const digit of text) {
    const bits = digits.get(digit) ?? 0;
    value += (bits & 31) * 2 ** shift;
    shift += 5;
    if ((bits & 32) !== 0) continue;
    values.push((value & 1) === 1 ? -(value >>> 1) : value >>> 1);
    value = 0;
    shift = 0;
  }
  return values;
}
