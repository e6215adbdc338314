/** `structuredClone` for what a workflow can hold. Source: HTML, section 2.7, less transfer of ownership. */

export function structuredClone(value: unknown): unknown {
  return clone(value, new Map());
}

const errors: Record<string, ErrorConstructor> = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function clone(value: unknown, known: Map<object, unknown>): unknown {
  if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`structuredClone() can't copy a ${typeof value}`);
  if (typeof value !== "object" || value === null) return value;
  const found = known.get(value);
  if (found !== undefined) return found;
  const copy = begin(value);
  known.set(value, copy);
  if (value instanceof Map) {
    for (const [key, item] of [...value]) (copy as Map<unknown, unknown>).set(clone(key, known), clone(item, known));
  } else if (value instanceof Set) {
    for (const item of [...value]) (copy as Set<unknown>).add(clone(item, known));
  } else if (value instanceof Error) {
    if (value.cause !== undefined) (copy as Error).cause = clone(value.cause, known);
  } else if (Array.isArray(value) || isPlain(value)) {
    for (const key of Object.keys(value)) (copy as Record<string, unknown>)[key] = clone((value as Record<string, unknown>)[key], known);
  }
  return copy;
}

/** A copy without its members. */
function begin(value: object): object {
  if (Array.isArray(value)) return new Array(value.length);
  if (value instanceof Date) return new Date(value.getTime());
  if (value instanceof RegExp) return new RegExp(value.source, value.flags);
  if (value instanceof Map) return new Map();
  if (value instanceof Set) return new Set();
  if (value instanceof ArrayBuffer) return value.slice(0);
  if (ArrayBuffer.isView(value)) return cloneView(value);
  if (value instanceof Error) return cloneError(value);
  if (value instanceof Boolean || value instanceof Number || value instanceof String || value instanceof BigInt)
    return Object(value.valueOf()) as object;
  if (isPlain(value)) return {};
  throw new TypeError(`structuredClone() can't copy ${Object.prototype.toString.call(value)}`);
}

function cloneView(view: ArrayBufferView): object {
  const bytes = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  return new (view.constructor as new (buffer: ArrayBufferLike) => object)(bytes);
}

function cloneError(error: Error): Error {
  const copy = new (errors[error.name] ?? Error)(error.message);
  if (error.stack !== undefined) Object.defineProperty(copy, "stack", { value: error.stack, writable: true, configurable: true });
  return copy;
}

/** Any object that is none of the known kinds loses its prototype, as the standard says. */
function isPlain(value: object): boolean {
  return (
    Object.prototype.toString.call(value) === "[object Object]" &&
    !(value instanceof Promise) &&
    !(value instanceof WeakMap) &&
    !(value instanceof WeakSet)
  );
}
