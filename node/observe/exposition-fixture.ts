/**
 * A strict reader of the Prometheus text format, version 0.0.4: it throws where a lenient scraper
 * would guess. Families must be declared once, before their samples, and not interleaved.
 */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly samples: Sample[];
}

const metricName = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const labelName = /^[a-zA-Z_][a-zA-Z0-9_]*$/;
const types = new Set(["counter", "gauge", "histogram", "summary", "untyped"]);
const suffixes: Readonly<Record<string, readonly string[]>> = { histogram: ["_bucket", "_sum", "_count"], summary: ["", "_sum", "_count"] };

/** Throws `SyntaxError` with the line at fault. */
export function parseExposition(text: string): Map<string, Family> {
  if (!text.endsWith("\n")) throw new SyntaxError("The page does not end with a line feed");
  const families = new Map<string, { name: string; type: string | undefined; help: string | undefined; samples: Sample[] }>();
  let current: string | undefined;
  const fail = (line: string, why: string): never => {
    throw new SyntaxError(`${why}: ${JSON.stringify(line)}`);
  };
  for (const line of text.slice(0, -1).split("\n")) {
    if (line === "") continue;
    const meta = /^# (HELP|TYPE) (\S+) ?(.*)$/.exec(line);
    if (meta !== null) {
      const [, kind, name = "", rest = ""] = meta;
      if (!metricName.test(name)) fail(line, "The metric's name is not valid");
      if (current !== name && families.has(name)) fail(line, "The family is declared twice or interleaved");
      const family = families.get(name) ?? { name, type: undefined, help: undefined, samples: [] };
      if (family.samples.length > 0) fail(line, "A declaration follows samples");
      if (kind === "TYPE" && (family.type !== undefined || !types.has(rest))) fail(line, "The type is unknown or given twice");
      if (kind === "HELP" && (family.help !== undefined || rest === "")) fail(line, "The help is empty or given twice");
      families.set(name, kind === "TYPE" ? { ...family, type: rest } : { ...family, help: rest });
      current = name;
      continue;
    }
    if (line.startsWith("#")) continue;
    const sample = parseSample(line, fail);
    const family = current === undefined ? undefined : families.get(current);
    if (family === undefined || family.type === undefined) throw new SyntaxError(`A sample without a declared family: ${line}`);
    const allowed = (suffixes[family.type] ?? [""]).map((suffix) => family.name + suffix);
    if (!allowed.includes(sample.name)) fail(line, `The sample does not belong to ${family.name}`);
    if (family.type === "counter" && (!family.name.endsWith("_total") || !(sample.value >= 0)))
      fail(line, "A counter ends in _total and is not negative");
    family.samples.push(sample);
  }
  const out = new Map<string, Family>();
  for (const { name, type, help, samples } of families.values()) {
    if (type === undefined || help === undefined) throw new SyntaxError(`Family ${name} lacks its type or help`);
    if (type === "histogram") checkHistogram(name, samples);
    const keys = samples.map((sample) => JSON.stringify([sample.name, sorted(sample.labels)]));
    if (new Set(keys).size !== keys.length) throw new SyntaxError(`Family ${name} holds a series twice`);
    out.set(name, { name, type, help, samples });
  }
  return out;
}

function parseSample(line: string, fail: (line: string, why: string) => never): Sample {
  const match = /^([^\s{]+)(?:\{(.*)\})? (\S+)$/.exec(line);
  const [, name = "", labels, number = ""] = match ?? fail(line, "The line is no sample");
  if (!metricName.test(name)) fail(line, "The metric's name is not valid");
  const value = number === "+Inf" ? Number.POSITIVE_INFINITY : number === "-Inf" ? Number.NEGATIVE_INFINITY : Number(number);
  if (Number.isNaN(value) && number !== "NaN") fail(line, "The value is no number");
  return { name, labels: parseLabels(labels ?? "", line, fail), value };
}

function parseLabels(text: string, line: string, fail: (line: string, why: string) => never): Record<string, string> {
  const out: Record<string, string> = {};
  let rest = text;
  while (rest !== "") {
    const match = /^([^=,]+)="((?:[^"\\\n]|\\[\\n"])*)"(,|$)/.exec(rest) ?? fail(line, "The labels are not valid");
    const [whole, name = "", value = ""] = match;
    if (!labelName.test(name) || name.startsWith("__")) fail(line, `Label ${name} has no valid name`);
    if (name in out) fail(line, `Label ${name} is given twice`);
    out[name] = value;
    rest = rest.slice(whole.length);
  }
  return out;
}

const sorted = (labels: Readonly<Record<string, string>>) => Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));

/** Buckets must be cumulative, end at +Inf, and agree with the count. */
function checkHistogram(name: string, samples: readonly Sample[]): void {
  const groups = new Map<string, { buckets: Sample[]; count: number | undefined; hasSum: boolean }>();
  for (const sample of samples) {
    const { le: _, ...labels } = sample.labels;
    const key = JSON.stringify(sorted(labels));
    const group = groups.get(key) ?? { buckets: [], count: undefined, hasSum: false };
    if (sample.name.endsWith("_bucket")) group.buckets.push(sample);
    else if (sample.name.endsWith("_count")) group.count = sample.value;
    else group.hasSum = true;
    groups.set(key, group);
  }
  for (const { buckets, count, hasSum } of groups.values()) {
    const bounds = buckets.map((bucket) => (bucket.labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(bucket.labels.le)));
    const isRising = buckets.every(
      (bucket, i) => i === 0 || (bucket.value >= (buckets[i - 1]?.value ?? 0) && (bounds[i] ?? 0) > (bounds[i - 1] ?? 0)),
    );
    if (!hasSum || !isRising || bounds.at(-1) !== Number.POSITIVE_INFINITY || buckets.at(-1)?.value !== count) {
      throw new SyntaxError(`Histogram ${name} is not whole: its buckets, sum and count do not agree`);
    }
  }
}
