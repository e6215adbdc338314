/** Sizes as people read them. */

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
