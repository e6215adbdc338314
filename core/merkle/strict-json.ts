/**
 * Reads the JSON of proof and root files so that no byte of them is without meaning.
 *
 * Apart from white space between its parts, a text that is accepted is the one way to write its
 * values: fields in the format's order, none twice, no other spelling of a number or a string, hex
 * in lower case. So a changed byte is a changed value, and values are what the checks compare.
 */
import { fromHex } from "#core/base";

export interface Problem {
  readonly problem: string;
}

export type Fields = Readonly<Record<string, unknown>>;

/** The object in `text`, which has exactly the fields `names`, in that order. */
export function parseFields(text: string, names: readonly string[]): { readonly fields: Fields } | Problem {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { problem: "it is not JSON" };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return { problem: "it is not a JSON object" };
  for (const name of Object.keys(value)) if (!names.includes(name)) return { problem: `it has the unknown field ${JSON.stringify(name)}` };
  for (const name of names) if (!Object.hasOwn(value, name)) return { problem: `it has no field ${JSON.stringify(name)}` };
  if (Object.keys(value).join() !== names.join()) return { problem: `its fields are not in the order ${names.join(", ")}` };
  const got = compact(text);
  const want = JSON.stringify(value);
  if (got === want) return { fields: value as Fields };
  let at = 0;
  while (got[at] === want[at]) at++;
  const near = JSON.stringify(got.slice(Math.max(0, at - 12), at + 12));
  return { problem: `a field is there twice, or a value is not in its plain form, near ${near}` };
}

/** The text without white space between its parts. */
function compact(text: string): string {
  let out = "";
  let from = 0;
  let isInText = false;
  for (let i = 0; i < text.length; i++) {
    const char = text[i];
    if (char === '"') isInText = !isInText;
    else if (isInText && char === "\\") i++;
    else if (!isInText && (char === " " || char === "\n" || char === "\t" || char === "\r")) {
      out += text.slice(from, i);
      from = i + 1;
    }
  }
  return out + text.slice(from);
}

/** Bytes of a lower-case hex text, or undefined. */
export function hexField(value: unknown, bytes?: number): Uint8Array | undefined {
  if (typeof value !== "string" || /[A-F]/.test(value)) return undefined;
  const out = fromHex(value);
  return bytes === undefined || out?.length === bytes ? out : undefined;
}

/** Hashes of a list of hex texts, or undefined. */
export function hashesField(value: unknown): Uint8Array[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const out: Uint8Array[] = [];
  for (const item of value) {
    const hash = hexField(item, 32);
    if (hash === undefined) return undefined;
    out.push(hash);
  }
  return out;
}

/** An integer in [0, max], or undefined. */
export function countField(value: unknown, max: number): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 && value <= max ? value : undefined;
}
