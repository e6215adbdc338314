/** Positions in bundled code, turned back into positions in the files they came from. */
import type { FailureInit } from "#proto";
import type { SourceMap } from "../../bundle/artefact.ts";
import { decodeMappings, type Segment } from "../../bundle/source-map.ts";

const position = /\bworkflow\.js:(\d+):(\d+)/g;

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
    return text.replace(
      position,
      (found, line: string, column: string) => this.#find(bundle, Number(line) - 1, Number(column) - 1) ?? found,
    );
  }

  #find({ artefact }: Mapped, line: number, column: number): string | undefined {
    let lines = this.#lines.get(artefact);
    if (lines === undefined) {
      lines = decodeMappings(artefact.map.mappings);
      this.#lines.set(artefact, lines);
    }
    const segment = lines[line]?.findLast((candidate) => candidate[0] <= column);
    if (segment?.length !== 4) return undefined;
    return `${artefact.map.sources[segment[1]] ?? "?"}:${segment[2] + 1}:${segment[3] + 1}`;
  }
}
