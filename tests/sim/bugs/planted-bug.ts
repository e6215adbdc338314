/** One bug that the simulator must find, and how those that are a single edit are written down. */
export interface PlantedBug {
  readonly name: string;
  readonly story: string;
  readonly edits: readonly { readonly file: string; readonly find: string; readonly put: string }[];
  /** Invariants of which one must be reported as broken. */
  readonly breaks: readonly string[];
  /** Seeds known to find it: the first is tried first. */
  readonly seeds: readonly number[];
}

export const bug = (
  name: string,
  story: string,
  file: string,
  find: string,
  put: string,
  breaks: string[],
  seeds: number[] = [],
): PlantedBug => ({
  name,
  story,
  edits: [{ file, find, put }],
  breaks,
  seeds,
});
