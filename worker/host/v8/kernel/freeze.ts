/**
 * Freezes a realm, so that no run can change what another one sees.
 *
 * Freezing a prototype has a side effect: an object that inherits from it can't be assigned a
 * property of the same name. Where code relies on doing that (`this.name = …` in a subclass of
 * Error), the property becomes an accessor whose setter defines it on the receiver.
 */

/** Kept extensible until a blob was opened: V8 adds properties to them when it opens one. */
export function freezeIntrinsics(realm: typeof globalThis): void {
  allowOverrides(Object.prototype, [
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
  ]);
  allowOverrides(Function.prototype, ["toString", "bind", "call", "apply"]);
  for (const type of [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, AggregateError]) {
    allowOverrides(type.prototype, ["constructor", "message", "name", "toString"]);
  }
  dropLegacyRegExp();
  const later = new Set<object>([realm, Error]);
  const frozen = new Set<object>();
  freezeAll(realm, later, frozen);
  for (const root of hiddenIntrinsics()) freezeAll(root, later, frozen);
}

export function freezeRealm(realm: typeof globalThis): void {
  Object.freeze(Error);
  for (const name of Reflect.ownKeys(realm)) lock(realm, name);
  // The global object of some `node:vm` realms can't be closed.
  Reflect.preventExtensions(realm);
}

/** `RegExp.$1` and its kin would show one run what another one matched last. */
function dropLegacyRegExp(): void {
  for (const name of Object.getOwnPropertyNames(RegExp)) {
    if (/^(\$[1-9_&+`']|input|lastMatch|lastParen|leftContext|rightContext)$/.test(name))
      delete (RegExp as unknown as Record<string, unknown>)[name];
  }
}

/** What no property path leads to. */
function hiddenIntrinsics(): object[] {
  const samples = [
    async () => {},
    function* () {},
    async function* () {},
    [].values(),
    new Map().keys(),
    new Set().keys(),
    ""[Symbol.iterator](),
    "".matchAll(/x/g),
    // Engines before 2024, which only tests run on, have no helpers of iterators.
    ...("Iterator" in globalThis
      ? [[].values().map((x) => x), Iterator.from({ next: () => ({ done: true, value: undefined }) } as Iterator<unknown>)]
      : []),
    new Intl.Segmenter("en").segment(""),
    new Intl.Segmenter("en").segment("")[Symbol.iterator](),
  ];
  return samples.map((sample) => Object.getPrototypeOf(sample) as object);
}

function freezeAll(root: object, later: ReadonlySet<object>, frozen: Set<object>): void {
  const open: unknown[] = [root];
  while (open.length > 0) {
    const value = open.pop();
    if ((typeof value !== "object" && typeof value !== "function") || value === null || frozen.has(value)) continue;
    frozen.add(value);
    for (const key of Reflect.ownKeys(value)) {
      const property = Reflect.getOwnPropertyDescriptor(value, key);
      // The global object of a `node:vm` realm lists names that it does not have.
      if (property === undefined) continue;
      if ("value" in property) open.push(property.value);
      else open.push(property.get, property.set);
    }
    open.push(Object.getPrototypeOf(value));
    if (!later.has(value)) freezeOne(value);
  }
}

function freezeOne(value: object): void {
  // A typed array with elements can't be frozen; its buffer could be written anyway.
  if (ArrayBuffer.isView(value)) Object.preventExtensions(value);
  else Object.freeze(value);
}

function lock(object: object, key: PropertyKey): void {
  const property = Reflect.getOwnPropertyDescriptor(object, key);
  if (property === undefined || property.configurable !== true) return;
  // In full: the global object of a `node:vm` realm takes what is left out for undefined.
  Object.defineProperty(object, key, { ...property, ...("value" in property ? { writable: false } : {}), configurable: false });
}

function allowOverrides(prototype: object, keys: readonly PropertyKey[]): void {
  for (const key of keys) {
    const property = Reflect.getOwnPropertyDescriptor(prototype, key);
    if (property === undefined || !("value" in property) || property.configurable !== true) continue;
    const { value, enumerable } = property;
    const accessor = {
      get(): unknown {
        return value;
      },
      set(this: unknown, replacement: unknown): void {
        if (this === prototype || this === null || (typeof this !== "object" && typeof this !== "function")) {
          throw new TypeError(`Cannot change ${String(key)}: what all runs share is frozen`);
        }
        Object.defineProperty(this, key, { value: replacement, writable: true, enumerable: true, configurable: true });
      },
    };
    Object.defineProperty(prototype, key, { get: accessor.get, set: accessor.set, enumerable: enumerable === true, configurable: true });
  }
}

/**
 * Freezes what a package exports and all that is reachable from it.
 *
 * A getter that replaces itself by its value at the first read would fail on a frozen object, so
 * each getter is read once before. What hides in closures, maps and typed arrays can't be frozen.
 */
export function freezePackage(root: unknown, frozen: Set<object>): void {
  const open: unknown[] = [root];
  while (open.length > 0) {
    const value = open.pop();
    if ((typeof value !== "object" && typeof value !== "function") || value === null || frozen.has(value) || Object.isFrozen(value))
      continue;
    frozen.add(value);
    if (isPrototype(value)) allowOverrides(value, Reflect.ownKeys(value));
    else settleGetters(value);
    for (const key of Reflect.ownKeys(value)) {
      const property = Reflect.getOwnPropertyDescriptor(value, key);
      if (property === undefined) continue;
      if ("value" in property) open.push(property.value);
      else open.push(property.get, property.set);
    }
    open.push(Object.getPrototypeOf(value));
    freezeOne(value);
  }
}

function isPrototype(value: object): boolean {
  const property = Reflect.getOwnPropertyDescriptor(value, "constructor");
  const make: unknown = property === undefined ? undefined : property.value;
  return typeof make === "function" && make.prototype === value;
}

function settleGetters(value: object): void {
  for (const key of Reflect.ownKeys(value)) {
    const property = Reflect.getOwnPropertyDescriptor(value, key);
    if (property?.get === undefined) continue;
    try {
      Reflect.get(value, key);
    } catch {
      // It throws for whoever reads it.
    }
  }
}

/** Freezes a module's exports, and those of modules that it exports as a whole. */
export function freezeExports(module: object): void {
  for (const key of Reflect.ownKeys(module)) {
    const value: unknown = Reflect.get(module, key);
    if (Object.isFrozen(module) || !isNamespace(value)) continue;
    for (const name of Reflect.ownKeys(value)) Object.defineProperty(value, name, { value: Reflect.get(value, name), writable: false });
    freezeExports(value);
  }
  Object.freeze(module);
}

/** The bundler's form of `import * as`: accessors all over. */
function isNamespace(value: unknown): value is object {
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return false;
  const properties = Object.values(Object.getOwnPropertyDescriptors(value));
  return (
    properties.length > 0 &&
    properties.every(({ get, set, configurable }) => get !== undefined && set !== undefined && configurable === true)
  );
}
