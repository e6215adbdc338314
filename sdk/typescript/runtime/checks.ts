/** Arguments of the public calls: what is allowed, and the errors that say so. */

/** UTF-8 bytes of a signal, query, method or activity name. */
export const nameBytesMax = 255;
/** One hundred years of 365.25 days, in milliseconds: the longest timer. */
export const timerMsMax = Math.ceil(100 * 365.25 * 24 * 3600 * 1000);

/** Throws a `TypeError` unless `name` can name an activity, a signal, a query or a method. */
export function checkName(what: string, name: unknown): asserts name is string {
  const problem = nameProblem(name);
  if (problem !== undefined) throw new TypeError(`${what} name ${problem}`);
}

function nameProblem(name: unknown): string | undefined {
  if (typeof name !== "string") return `must be a string, got ${describe(name)}`;
  if (name === "") return "is empty";
  if (name.length > nameBytesMax || (name.length > nameBytesMax / 3 && utf8Bytes(name) > nameBytesMax)) {
    return `is longer than ${nameBytesMax} bytes`;
  }
  for (let i = 0; i < name.length; i++) {
    const code = name.charCodeAt(i);
    if (code < 0x20 || code === 0x7f) return "holds a control character";
  }
  return name.isWellFormed() ? undefined : "is not well-formed Unicode";
}

/** Throws a `TypeError` unless `address` is `namespace:instance`, or the name of an instance (a channel's name) alone. */
export function checkAddress(address: unknown, of: "run" | "channel" = "run"): asserts address is string {
  if (typeof address !== "string") throw new TypeError(`The address of a ${of} must be a string, got ${describe(address)}`);
  const colon = address.indexOf(":");
  const namespace = colon < 0 ? "own" : address.slice(0, colon);
  const what = `The address ${describe(address)} of a ${of}`;
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(namespace)) {
    throw new TypeError(`${what} has a namespace that is not 1–63 letters, digits, '-', '_' or '.', beginning with a letter or digit`);
  }
  const problem = nameProblem(address.slice(colon + 1));
  if (problem !== undefined) throw new TypeError(`${what} has ${of === "run" ? "an instance name" : "a name"} that ${problem}`);
}

/** Bytes of `text` in UTF-8; a lone surrogate counts as the replacement character. */
export function utf8Bytes(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 0x80) continue;
    bytes += code < 0x800 ? 1 : 2;
    if (code >= 0xd800 && code < 0xdc00 && i + 1 < text.length) {
      const next = text.charCodeAt(i + 1);
      // A pair is two units and four bytes.
      if (next >= 0xdc00 && next < 0xe000) i++;
    }
  }
  return bytes;
}

/**
 * A duration as whole milliseconds: rounded up, so that no timer is early, and at least 0.
 * Throws `TypeError` for what is not a number, `RangeError` for an infinite or too long one.
 */
export function checkDuration(what: string, ms: unknown): number {
  if (typeof ms !== "number" || Number.isNaN(ms)) throw new TypeError(`${what} must be a number of milliseconds, got ${describe(ms)}`);
  if (!Number.isFinite(ms)) throw new RangeError(`${what} must be finite, got ${ms}`);
  if (ms > timerMsMax) throw new RangeError(`${what} is ${ms} ms, at most 100 years (${timerMsMax} ms) are allowed`);
  return wholeMs(ms);
}

/** As history keeps a duration, which has no sign: rounded up, from 0 to the longest; what is no number is 0. */
export const wholeMs = (ms: number): number => (ms > 0 ? Math.min(Math.ceil(ms), timerMsMax) : 0);

/** UTF-8 bytes of a reason. */
const textBytesMax = 4096;

/** Throws unless `text` is a string that history may keep as somebody's words. */
export function checkText(what: string, text: unknown): asserts text is string {
  if (typeof text !== "string") throw new TypeError(`${what} must be a string, got ${describe(text)}`);
  if (!text.isWellFormed()) throw new TypeError(`${what} is not well-formed Unicode`);
  if (utf8Bytes(text) > textBytesMax) throw new RangeError(`${what} has ${utf8Bytes(text)} bytes, at most ${textBytesMax} are allowed`);
}

/** Throws a `TypeError` where `value` has a field that is not known. */
export function checkFields(what: string, value: object, known: readonly string[]): void {
  for (const name of Object.keys(value)) {
    if (!known.includes(name)) throw new TypeError(`${what}: ${name} is not known; known are ${known.join(", ")}`);
  }
}

export function describe(value: unknown): string {
  if (value === null) return "null";
  if (typeof value === "number" || typeof value === "boolean" || value === undefined) return String(value);
  return typeof value === "string" ? JSON.stringify(value.slice(0, 40)) : typeof value;
}
