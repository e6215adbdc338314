/** The `mappings` of version 3 source maps: from positions in generated code to positions in its sources. */

/** A piece of generated code, all counted from 0: its column, then source, line and column. Without the last three it has no source. */
export type Segment = readonly [column: number] | readonly [column: number, source: number, line: number, sourceColumn: number];

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const digits = new Map([...alphabet].map((digit, value) => [digit, value]));

/** Segments of each generated line. Names are left out. */
export function decodeMappings(mappings: string): Segment[][] {
  let [source, line, sourceColumn] = [0, 0, 0];
  return mappings.split(";").map((text) => {
    let column = 0;
    const segments: Segment[] = [];
    for (const part of text === "" ? [] : text.split(",")) {
      const deltas = decodeVlq(part);
      column += deltas[0] ?? 0;
      if (deltas.length < 4) {
        segments.push([column]);
        continue;
      }
      source += deltas[1]!;
      line += deltas[2]!;
      sourceColumn += deltas[3]!;
      segments.push([column, source, line, sourceColumn]);
    }
    return segments;
  });
}

export function encodeMappings(lines: readonly (readonly Segment[])[]): string {
  let [source, line, sourceColumn] = [0, 0, 0];
  return lines
    .map((segments) => {
      let column = 0;
      return segments
        .map((segment) => {
          const deltas = [segment[0] - column];
          column = segment[0];
          if (segment.length === 4) {
            deltas.push(segment[1] - source, segment[2] - line, segment[3] - sourceColumn);
            [, source, line, sourceColumn] = segment;
          }
          return deltas.map(encodeVlq).join("");
        })
        .join(",");
    })
    .join(";");
}

/** Removes every match of `pattern`'s first group from `code`, and moves what follows it in the map. */
export function removeMapped(code: string, mappings: string, pattern: RegExp): { code: string; mappings: string } {
  const map = decodeMappings(mappings);
  const lines = code.split("\n").map((text, at) => {
    let removed = 0;
    return text.replaceAll(pattern, (...match: unknown[]) => {
      const [whole, cut, offset] = [match[0] as string, match[1] as string, match.at(-2) as number];
      const begin = offset + whole.lastIndexOf(cut) - removed;
      map[at] = (map[at] ?? []).map((segment) => (segment[0] > begin ? moved(segment, -cut.length) : segment));
      removed += cut.length;
      return whole.slice(0, whole.lastIndexOf(cut)) + whole.slice(whole.lastIndexOf(cut) + cut.length);
    });
  });
  return { code: lines.join("\n"), mappings: encodeMappings(map) };
}

function moved(segment: Segment, by: number): Segment {
  return segment.length === 4 ? [segment[0] + by, segment[1], segment[2], segment[3]] : [segment[0] + by];
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

function encodeVlq(value: number): string {
  let rest = value < 0 ? -value * 2 + 1 : value * 2;
  let text = "";
  do {
    const bits = rest & 31;
    rest >>>= 5;
    text += alphabet[rest > 0 ? bits | 32 : bits];
  } while (rest > 0);
  return text;
}
