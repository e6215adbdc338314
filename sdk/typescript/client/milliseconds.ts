/** A duration as the wire has it: whole, rounded up. Throws `RangeError` for what is none. */
export function milliseconds(name: string, value: number | undefined): number | undefined {
  if (value === undefined) return undefined;
  if (!(value >= 0 && value < Number.POSITIVE_INFINITY))
    throw new RangeError(`${name} is ${value}: want a number of milliseconds from 0 on`);
  return Math.ceil(value);
}
