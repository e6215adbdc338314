/**
 * `Intl` with fixed defaults (en-US, UTC, the run's time) and objects that V8 can put into a
 * blob: it aborts on a real one. A wrapper keeps locales and options; in a realm that will never
 * be a blob it also keeps the real object once made.
 */
import { readingRun } from "./run.ts";

interface Shape {
  readonly name: string;
  /** Read as bound functions, like `format` of a NumberFormat. */
  readonly bound: readonly string[];
  readonly methods: readonly string[];
  /** Called without `new` too. */
  readonly callable?: boolean;
  /** Their first argument defaults to now. */
  readonly nowMethods?: readonly string[];
}

const shapes: readonly Shape[] = [
  {
    name: "NumberFormat",
    bound: ["format"],
    methods: ["formatToParts", "formatRange", "formatRangeToParts", "resolvedOptions"],
    callable: true,
  },
  {
    name: "DateTimeFormat",
    bound: ["format"],
    methods: ["formatToParts", "formatRange", "formatRangeToParts", "resolvedOptions"],
    callable: true,
    nowMethods: ["format", "formatToParts"],
  },
  { name: "Collator", bound: ["compare"], methods: ["resolvedOptions"], callable: true },
  { name: "PluralRules", bound: [], methods: ["select", "selectRange", "resolvedOptions"] },
  { name: "ListFormat", bound: [], methods: ["format", "formatToParts", "resolvedOptions"] },
  { name: "RelativeTimeFormat", bound: [], methods: ["format", "formatToParts", "resolvedOptions"] },
  { name: "DisplayNames", bound: [], methods: ["of", "resolvedOptions"] },
  { name: "DurationFormat", bound: [], methods: ["format", "formatToParts", "resolvedOptions"] },
  { name: "Segmenter", bound: [], methods: ["segment", "resolvedOptions"] },
];

let keepsReal = false;

/** To be called in a realm that will never be a blob. */
export function keepRealIntl(): void {
  keepsReal = true;
}

type Method = (...args: unknown[]) => unknown;
type RealIntl = Record<string, Method>;
type Construct = (new (locales: unknown, options: unknown) => RealIntl) & { supportedLocalesOf(...args: unknown[]): string[] };

export function wrapIntl(intl: typeof Intl): void {
  const target = intl as unknown as Record<string, Construct>;
  for (const shape of shapes) {
    const Real = target[shape.name];
    if (Real === undefined) continue;
    Object.defineProperty(target, shape.name, { value: makeWrapper(shape, Real), writable: true, configurable: true, enumerable: false });
  }
}

function makeWrapper(shape: Shape, Real: Construct): unknown {
  const states = new WeakMap<object, { locales: unknown; options: unknown; real: RealIntl | undefined; bound: Map<string, Method> }>();
  const realOf = (wrapper: object): RealIntl => {
    const state = states.get(wrapper);
    if (state === undefined) throw new TypeError(`Not an Intl.${shape.name}`);
    if (state.real !== undefined) return state.real;
    const real = new Real(state.locales, state.options);
    if (keepsReal) state.real = real;
    return real;
  };
  function Wrapper(this: object, locales?: unknown, options?: unknown): object {
    if (new.target === undefined && shape.callable !== true) throw new TypeError(`Constructor Intl.${shape.name} requires 'new'`);
    const kept = locales === undefined ? "en-US" : Intl.getCanonicalLocales(locales as string);
    const copied = options === undefined || options === null ? options : { ...(options as object) };
    const real = new Real(kept, copied);
    const wrapper = Object.create((new.target ?? Wrapper).prototype as object) as object;
    states.set(wrapper, { locales: kept, options: copied, real: keepsReal ? real : undefined, bound: new Map() });
    return wrapper;
  }
  const call = (wrapper: object, name: string, args: unknown[]): unknown => {
    const filled = args[0] === undefined && shape.nowMethods?.includes(name) === true ? [readingRun(`Intl.${shape.name}`).nowMs] : args;
    const real = realOf(wrapper);
    return real[name]!(...filled);
  };
  const hidden = { configurable: true, enumerable: false };
  for (const name of shape.methods) {
    const method = {
      [name](this: object, ...args: unknown[]) {
        return call(this, name, args);
      },
    }[name];
    Object.defineProperty(Wrapper.prototype, name, { value: method, writable: true, ...hidden });
  }
  for (const name of shape.bound) {
    const get = function (this: object): Method {
      realOf(this);
      const { bound } = states.get(this)!;
      let method = bound.get(name);
      if (method === undefined) {
        method = (...args: unknown[]) => call(this, name, args);
        bound.set(name, method);
      }
      return method;
    };
    Object.defineProperty(Wrapper.prototype, name, { get, ...hidden });
  }
  Object.defineProperty(Wrapper.prototype, Symbol.toStringTag, { value: `Intl.${shape.name}`, ...hidden });
  Object.defineProperty(Wrapper, "name", { value: shape.name });
  Object.defineProperty(Wrapper, "supportedLocalesOf", {
    value: (...args: unknown[]) => Real.supportedLocalesOf(...args),
    writable: true,
    ...hidden,
  });
  return Wrapper;
}
