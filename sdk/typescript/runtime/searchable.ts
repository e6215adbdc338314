/** Values by which runs are found: `hop workflow list --query "customer = 'ann'"`. */
import { describe, utf8Bytes } from "./checks.ts";
import { engine } from "./engine.ts";

/** What a run can be found by: texts, numbers, truths and times each compare among themselves. */
export type SearchableValue = string | number | boolean | Date;

const valueBytesMax = 2000;

/**
 * Makes the run findable by `name` from here on, beside its type and status; a later value takes the place of an earlier
 * one, and `null` takes it away. It is part of the run's history, and no more than that: the workflow reads nothing back.
 *
 * A name is 1 to 63 letters, digits, `_`, `-` or `.`, beginning with a letter or `_`; a run may have 64 of them.
 * A text has at most 2,000 bytes. Throws `TypeError` and `RangeError` for anything else.
 *
 * ```ts
 * searchable("customer", order.customer);
 * searchable("total", order.total);
 * ```
 */
export function searchable(name: string, value: SearchableValue | null): void {
  if (typeof name !== "string" || !/^[A-Za-z_][\w.-]{0,62}$/.test(name)) {
    throw new TypeError(
      `A searchable name is 1 to 63 letters, digits, "_", "-" or ".", beginning with a letter or "_", got ${describe(name)}`,
    );
  }
  engine("searchable()").searchable(name, JSON.stringify(plain(name, value)));
}

function plain(name: string, value: SearchableValue | null): string | number | boolean | null | { readonly time: number } {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new RangeError(`Searchable "${name}" must be finite, got ${value}`);
    return value;
  }
  if (value instanceof Date) {
    const time = value.getTime();
    if (Number.isNaN(time)) throw new RangeError(`Searchable "${name}" is an invalid date`);
    return { time };
  }
  if (typeof value !== "string")
    throw new TypeError(`Searchable "${name}" must be a string, a number, a boolean, a Date or null, got ${describe(value)}`);
  if (!value.isWellFormed()) throw new TypeError(`Searchable "${name}" is not well-formed Unicode`);
  if (utf8Bytes(JSON.stringify(value)) > valueBytesMax) throw new RangeError(`Searchable "${name}" has more than ${valueBytesMax} bytes`);
  return value;
}
