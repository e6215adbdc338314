/** Which versions of Hopskip get along: those of one major whose minors are at most one apart. */

interface Version {
  readonly major: number;
  readonly minor: number;
}

function parse(text: string): Version | undefined {
  const found = /^(\d{1,6})\.(\d{1,6})\.\d{1,6}(?:[-+][0-9A-Za-z.+-]{1,64})?$/.exec(text);
  return found === null ? undefined : { major: Number(found[1]), minor: Number(found[2]) };
}

export const isVersion = (text: string) => parse(text) !== undefined;

/** How many minors `b` is ahead of `a`: negative where it is behind, infinite where their majors differ, NaN where one is no version. */
export function minorsAhead(a: string, b: string): number {
  const [from, to] = [parse(a), parse(b)];
  if (from === undefined || to === undefined) return Number.NaN;
  return from.major === to.major ? to.minor - from.minor : Math.sign(to.major - from.major) * Number.POSITIVE_INFINITY;
}

/** Nodes of these versions may be members of one cluster. */
export const compatible = (a: string, b: string) => Math.abs(minorsAhead(a, b)) <= 1;
