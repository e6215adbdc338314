/** Rows as CSV (RFC 4180): quoted where a reader would need it. */

export const csvLine = (values: readonly string[]): string => values.map(quoted).join(",");

const quoted = (value: string) => (/[",\r\n]|^\s|\s$/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
