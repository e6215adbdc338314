/**
 * Writes proto/gen/codec.ts: straight-line encoders and decoders for every message of the
 * schema, from the descriptors that protoc-gen-es left beside it.
 *
 * The wire format is protobuf's own; a test holds each message against protobuf-es. What differs
 * is the cost: plain objects, no reflection, encoding in place. 64-bit integers are numbers.
 */
import type { DescField, DescFile, DescMessage } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";

const names = [
  "common",
  "event",
  "message",
  "record",
  "state",
  "dispatch",
  "client",
  "cluster",
  "raft",
  "forward",
  "peer",
  "placement",
  "snapshot",
  "schedule",
  "channel",
];
const files: DescFile[] = [];
for (const name of names) {
  const module = (await import(`../proto/gen/hopskip/v1/${name}_pb.js`)) as Record<string, DescFile>;
  const file = module[`file_hopskip_v1_${name}`];
  if (file === undefined) throw new Error(`Cannot generate: ${name}.proto has no descriptor`);
  files.push(file);
}

interface Kind {
  ts: string;
  wire: number;
  empty: string;
  isSet(value: string): string;
  read(end: string): string;
  write(tag: number, value: string): string;
}

function scalar(type: ScalarType): Kind {
  if (type === ScalarType.STRING)
    return {
      ts: "string",
      wire: 2,
      empty: '""',
      isSet: (v) => `${v} !== undefined && ${v} !== ""`,
      read: (e) => `r.text(${e})`,
      write: (t, v) => `w.text(${t}, ${v});`,
    };
  if (type === ScalarType.BYTES)
    return {
      ts: "Uint8Array",
      wire: 2,
      empty: "noBytes",
      isSet: (v) => `${v} !== undefined && ${v}.length > 0`,
      read: (e) => `r.view(${e})`,
      write: (t, v) => `w.field(${t}, ${v});`,
    };
  if (type === ScalarType.BOOL)
    return {
      ts: "boolean",
      wire: 0,
      empty: "false",
      isSet: (v) => `${v} === true`,
      read: () => "r.varint() !== 0",
      write: (t) => `w.varint(${t}); w.varint(1);`,
    };
  if (type === ScalarType.UINT32 || type === ScalarType.UINT64)
    return {
      ts: "number",
      wire: 0,
      empty: "0",
      isSet: (v) => `${v} !== undefined && ${v} !== 0`,
      read: () => "r.varint()",
      write: (t, v) => `w.varint(${t}); w.varint(${v});`,
    };
  throw new Error(`Cannot generate: scalar type ${type} has no codec`);
}

function kindOf(field: DescField): Kind {
  if (field.fieldKind === "scalar") return scalar(field.scalar);
  if (field.fieldKind === "list" && field.listKind === "scalar") return scalar(field.scalar);
  const message = field.message?.name;
  if (message === undefined) throw new Error(`Cannot generate: ${String(field)} has no codec`);
  return {
    ts: message,
    wire: 2,
    empty: "undefined",
    isSet: (v) => `${v} !== undefined`,
    read: (e) => `decode${message}(r, r.extent(${e}))`,
    write: (t, v) => `{ const mark = w.begin(${t}); encode${message}(w, ${v}); w.close(mark); }`,
  };
}

const isList = (field: DescField) => field.fieldKind === "list";
const isMessage = (field: DescField) => kindOf(field).empty === "undefined" && field.message !== undefined;
const tagOf = (field: DescField) => field.number * 8 + kindOf(field).wire;
const plain = (message: DescMessage) => message.fields.filter((f) => f.oneof === undefined);
const choices = (message: DescMessage) => message.fields.filter((f) => f.oneof !== undefined);

function typeOf(message: DescMessage): string {
  const own = plain(message).map((f) => {
    const ts = kindOf(f).ts;
    return `  ${f.localName}: ${isList(f) ? `${ts}[]` : isMessage(f) ? `${ts} | undefined` : ts};`;
  });
  const init = plain(message).map((f) => {
    const ts = isMessage(f) ? `${kindOf(f).ts}Init` : kindOf(f).ts;
    return `  ${f.localName}?: ${isList(f) ? `readonly ${ts}[]` : ts} | undefined;`;
  });
  const name = message.name;
  const options = choices(message);
  if (options.length === 0)
    return `export interface ${name} {\n${own.join("\n")}\n}\nexport interface ${name}Init {\n${init.join("\n")}\n}`;
  const union = (suffix: string, lines: string[]) =>
    options
      .map((f) => `  | { ${lines.map((l) => l.trim()).join(" ")} kind: "${f.localName}"; value: ${kindOf(f).ts}${suffix} }`)
      .join("\n");
  return `export type ${name} =\n${union("", own)}\n  | { ${own.map((l) => l.trim()).join(" ")} kind: "unknown" };\nexport type ${name}Init =\n${union("Init", init)};`;
}

function encoder(message: DescMessage): string {
  const lines = plain(message).map((f) => {
    const kind = kindOf(f);
    const value = `m.${f.localName}`;
    if (!isList(f)) return `  if (${kind.isSet(value)}) { ${kind.write(tagOf(f), value)} }`;
    return `  if (${value} !== undefined) for (const item of ${value}) { ${kind.write(tagOf(f), "item")} }`;
  });
  if (choices(message).length > 0) {
    const cases = choices(message).map((f) => `    case "${f.localName}": ${kindOf(f).write(tagOf(f), "m.value")} break;`);
    lines.push(`  switch (m.kind) {\n${cases.join("\n")}\n  }`);
  }
  return `export function encode${message.name}(w: Writer, m: ${message.name}Init): void {\n${lines.join("\n")}\n}`;
}

function decoder(message: DescMessage): string {
  const name = message.name;
  const options = choices(message);
  const vars = plain(message).map((f) => {
    const ts = kindOf(f).ts;
    if (isList(f)) return `  const ${f.localName}_: ${ts}[] = [];`;
    return isMessage(f) ? `  let ${f.localName}_: ${ts} | undefined;` : `  let ${f.localName}_: ${ts} = ${kindOf(f).empty};`;
  });
  const cases = plain(message).map((f) => {
    const read = kindOf(f).read("end");
    return `      case ${tagOf(f)}: ${isList(f) ? `${f.localName}_.push(${read});` : `${f.localName}_ = ${read};`} break;`;
  });
  const own = plain(message).map((f) => `${f.localName}: ${f.localName}_`);
  let result = `{ ${own.join(", ")} }`;
  if (options.length > 0) {
    vars.push(`  let choice = 0;`, ...options.map((f) => `  let ${f.localName}_: ${kindOf(f).ts} | undefined;`));
    for (const f of options) cases.push(`      case ${tagOf(f)}: ${f.localName}_ = ${kindOf(f).read("end")}; choice = ${f.number}; break;`);
    const lead = own.length > 0 ? `${own.join(", ")}, ` : "";
    result = `${options
      .map((f) => `choice === ${f.number} ? { ${lead}kind: "${f.localName}", value: ${f.localName}_ as ${kindOf(f).ts} }`)
      .join("\n    : ")}\n    : { ${lead}kind: "unknown" }`;
  }
  return `export function decode${name}(r: Reader, end: number): ${name} {
${vars.join("\n")}
  r.enter();
  while (r.at < end) {
    const tag = r.varint();
    switch (tag) {
${cases.join("\n")}
      default: r.skip(tag, end);
    }
  }
  r.leave(end);
  return ${result};
}`;
}

/**
 * Kinds in between are of placement's histories, all others of runs', schedules' and channels' (event.proto). The body
 * of kind RUN_STARTED is message RunStarted, and so on.
 */
const placementKinds = { first: 128, last: 159 };

/** The union of what happens to a run, and its codec: a switch, since the hot path is inlined into it. */
function runEvents(): string {
  const kinds = files.flatMap((f) => f.enums).find((e) => e.name === "EventKind");
  const own = (kinds?.values ?? []).filter((v) => v.number > 0 && (v.number < placementKinds.first || v.number > placementKinds.last));
  const bodies = own.map((value) => {
    const body = value.name
      .replace("EVENT_KIND_", "")
      .toLowerCase()
      .replace(/(?:^|_)([a-z])/g, (_, c: string) => c.toUpperCase());
    if (!files.some((f) => f.messages.some((m) => m.name === body)))
      throw new Error(`Cannot generate: ${value.name} has no message ${body}`);
    return { number: value.number, kind: `EventKind.${body[0]?.toLowerCase()}${body.slice(1)}`, body };
  });
  const union = bodies.map((b) => `  | { readonly kind: typeof ${b.kind}; readonly body: ${b.body} }`).join("\n");
  const encodes = bodies.map((b) => `    case ${b.number}: return encode${b.body}(w, e.body);`).join("\n");
  const decodes = bodies.map((b) => `    case ${b.number}: return { kind: ${b.kind}, body: decode${b.body}(r, end) };`).join("\n");
  return `/** What happens to a run: a kind and its body. */
export type RunEvent =
${union};

/** Writes the body that belongs to the event's kind. */
export function encodeRunEvent(w: Writer, e: RunEvent): void {
  switch (e.kind) {
${encodes}
  }
}

/** The event of a body, or undefined where this version does not know the kind. */
export function decodeRunEvent(kind: number, r: Reader, end: number): RunEvent | undefined {
  switch (kind) {
${decodes}
    default: return undefined;
  }
}`;
}

const parts = [
  "// Generated by scripts/gen-codec.ts from proto/hopskip/v1. Do not edit.",
  'import type { Reader } from "../codec/reader.ts";',
  'import type { Writer } from "../codec/writer.ts";',
  "const noBytes = new Uint8Array(0);",
];
for (const file of files) {
  for (const e of file.enums) {
    const prefix = e.name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toUpperCase();
    const values = e.values.map((v) => {
      const short = v.name
        .slice(prefix.length + 1)
        .toLowerCase()
        .replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());
      return `  ${short}: ${v.number},`;
    });
    parts.push(
      `export const ${e.name} = {\n${values.join("\n")}\n} as const;\nexport type ${e.name} = (typeof ${e.name})[keyof typeof ${e.name}];`,
    );
  }
  for (const message of file.messages) parts.push(typeOf(message), encoder(message), decoder(message));
}
parts.push(runEvents());
await Bun.write(new URL("../proto/gen/codec.ts", import.meta.url), `${parts.join("\n\n")}\n`);
