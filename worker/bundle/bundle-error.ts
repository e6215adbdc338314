/** Why workflows can't be bundled, one line for each thing that is wrong. */
export class BundleError extends Error {
  override name = "BundleError";
  readonly problems: readonly string[];

  constructor(problems: readonly string[], options?: ErrorOptions) {
    super(`Cannot bundle the workflows:\n${problems.map((problem) => `  ${problem}`).join("\n")}`, options);
    this.problems = problems;
  }
}
