/** Sizes as people read them. */

import { UsageError } from "./failure.ts";

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** Three digits at most: `512 B`, `1.5 MiB`, `204 GiB`. */
export function bytesText(bytes: number): string {
  let value = bytes;
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  const text = at === 0 || value >= 100 ? String(Math.round(value)) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
  return `${text.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "")} ${units[at]}`;
}

/** Bytes of `text`: `512B`, `64KiB`, `1.5 GiB`; `KB` and the like mean the same. Throws `UsageError`. */
export function parseSize(text: string, what: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?$/i.exec(text.trim());
  if (match === null || /^\d+(\.\d+)?$/.test(text.trim()))
    throw new UsageError(`Cannot read ${what} ${JSON.stringify(text)}: want a number with a unit, such as 512B, 64KiB or 1GiB`);
  const power = " KMGTP".indexOf((match[2] || " ").toUpperCase());
  const bytes = Math.round(Number(match[1]) * 1024 ** power);
  if (!Number.isSafeInteger(bytes) || bytes === 0) throw new UsageError(`Cannot use ${what} ${text}: want 1 B or more`);
  return bytes;
}
