/** Holds the generated codec against protobuf-es, message by message, and against hostile bytes. */
import { describe, expect, test } from "bun:test";
import {
  create,
  type DescField,
  type DescFile,
  type DescMessage,
  fromBinary,
  type Message,
  ScalarType,
  toBinary,
} from "@bufbuild/protobuf";
import fc from "fast-check";
import * as codec from "../gen/codec.ts";
import { file_hopskip_v1_client } from "../gen/hopskip/v1/client_pb.js";
import { file_hopskip_v1_cluster } from "../gen/hopskip/v1/cluster_pb.js";
import { file_hopskip_v1_common } from "../gen/hopskip/v1/common_pb.js";
import { file_hopskip_v1_dispatch } from "../gen/hopskip/v1/dispatch_pb.js";
import { file_hopskip_v1_event } from "../gen/hopskip/v1/event_pb.js";
import { file_hopskip_v1_message } from "../gen/hopskip/v1/message_pb.js";
import { file_hopskip_v1_peer } from "../gen/hopskip/v1/peer_pb.js";
import { file_hopskip_v1_placement } from "../gen/hopskip/v1/placement_pb.js";
import { file_hopskip_v1_record } from "../gen/hopskip/v1/record_pb.js";
import { file_hopskip_v1_state } from "../gen/hopskip/v1/state_pb.js";
import { type Decode, type Encode, fromBytes, toBytes } from "./messages.ts";
import { CodecError } from "./reader.ts";

const files: DescFile[] = [
  file_hopskip_v1_client,
  file_hopskip_v1_cluster,
  file_hopskip_v1_common,
  file_hopskip_v1_dispatch,
  file_hopskip_v1_event,
  file_hopskip_v1_message,
  file_hopskip_v1_peer,
  file_hopskip_v1_placement,
  file_hopskip_v1_record,
  file_hopskip_v1_state,
];
const messages = files.flatMap((file) => file.messages);

type Value = { [field: string]: unknown };
const functions = codec as unknown as Record<string, unknown>;
const encodeOf = (message: DescMessage) => functions[`encode${message.name}`] as Encode<Value>;
const decodeOf = (message: DescMessage) => functions[`decode${message.name}`] as Decode<Value>;

const sizes = fc.oneof(fc.nat(), fc.constantFrom(0, 1, 127, 128, 16383, 16384, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1), fc.maxSafeNat());

function scalarValues(type: ScalarType): fc.Arbitrary<unknown> {
  if (type === ScalarType.STRING) return fc.oneof(fc.string({ unit: "binary", maxLength: 200 }), fc.string({ maxLength: 40 }));
  if (type === ScalarType.BYTES) return fc.uint8Array({ maxLength: 300 });
  if (type === ScalarType.BOOL) return fc.boolean();
  return type === ScalarType.UINT64 ? sizes : sizes.map((size) => size % 2 ** 32);
}

function fieldValues(field: DescField, depth: number): fc.Arbitrary<unknown> {
  if (field.message !== undefined) return depth === 0 ? fc.constant(undefined) : values(field.message, depth - 1);
  return scalarValues(field.scalar as ScalarType);
}

const choicesOf = (message: DescMessage) => message.fields.filter((field) => field.oneof !== undefined);
const plainOf = (message: DescMessage) => message.fields.filter((field) => field.oneof === undefined);

/** Values of a message as the codec takes them, with fields left out at random. */
function values(message: DescMessage, depth: number): fc.Arbitrary<Value> {
  const fields: Record<string, fc.Arbitrary<unknown>> = {};
  for (const field of plainOf(message)) {
    const one = fieldValues(field, depth);
    const isBottom = depth === 0 && field.message !== undefined;
    const value = field.fieldKind !== "list" ? one : isBottom ? fc.constant([]) : fc.array(one, { maxLength: 4 });
    fields[field.localName] = fc.option(value, { nil: undefined });
  }
  const choices = choicesOf(message);
  if (choices.length === 0) return fc.record(fields);
  const choice = fc.oneof(
    ...choices.map((field) => values(field.message as DescMessage, depth).map((value) => ({ kind: field.localName, value }))),
  );
  return fc.tuple(fc.record(fields), choice).map(([own, chosen]) => ({ ...own, ...chosen }));
}

/** What protobuf-es calls the same value. */
function oracleField(field: DescField, value: unknown): unknown {
  if (field.message !== undefined) return oracle(field.message, value as Value);
  return field.scalar === ScalarType.UINT64 ? BigInt(value as number) : value;
}

function oracle(message: DescMessage, value: Value): Message {
  const init: Value = {};
  for (const field of plainOf(message)) {
    const own = value[field.localName];
    if (own === undefined) continue;
    init[field.localName] =
      field.fieldKind === "list" ? (own as unknown[]).map((item) => oracleField(field, item)) : oracleField(field, own);
  }
  const chosen = choicesOf(message).find((field) => field.localName === value.kind);
  if (chosen !== undefined) init[chosen.oneof?.localName as string] = { case: chosen.localName, value: oracleField(chosen, value.value) };
  return create(message, init as never);
}

function empty(field: DescField): unknown {
  if (field.fieldKind === "list") return [];
  if (field.message !== undefined) return undefined;
  if (field.scalar === ScalarType.STRING) return "";
  if (field.scalar === ScalarType.BYTES) return new Uint8Array(0);
  return field.scalar === ScalarType.BOOL ? false : 0;
}

/** The value with all fields there, as it is decoded. */
function full(message: DescMessage, value: Value): Value {
  const out: Value = {};
  const filled = (field: DescField, own: unknown) => (field.message === undefined ? own : full(field.message, own as Value));
  for (const field of plainOf(message)) {
    const own = value[field.localName] ?? empty(field);
    out[field.localName] =
      field.fieldKind === "list" ? (own as unknown[]).map((item) => filled(field, item)) : own === undefined ? own : filled(field, own);
  }
  const chosen = choicesOf(message).find((field) => field.localName === value.kind);
  return chosen === undefined ? out : { ...out, kind: value.kind, value: filled(chosen, value.value) };
}

/** Bytes are equal whatever class of array holds them. */
const plainBytes = (value: unknown): unknown =>
  value instanceof Uint8Array
    ? [...value]
    : Array.isArray(value)
      ? value.map(plainBytes)
      : typeof value === "object" && value !== null
        ? Object.fromEntries(Object.entries(value).map(([key, own]) => [key, plainBytes(own)]))
        : value;

const depth = 3;
const numRuns = 60;

function decodesOrRefuses(message: DescMessage, bytes: Uint8Array): void {
  try {
    fromBytes(decodeOf(message), bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(CodecError);
  }
}

test("every message of the schema has a codec", () => {
  expect(messages.length).toBeGreaterThan(70);
  for (const message of messages)
    expect([message.name, typeof encodeOf(message), typeof decodeOf(message)]).toEqual([message.name, "function", "function"]);
});

for (const message of messages) {
  describe(message.name, () => {
    test("encodes to the bytes that protobuf-es writes, and decodes what it wrote", () => {
      fc.assert(
        fc.property(values(message, depth), (value) => {
          const bytes = toBytes(encodeOf(message), value);
          const theirs = toBinary(message, oracle(message, value));
          expect(Buffer.from(bytes).toString("hex")).toBe(Buffer.from(theirs).toString("hex"));
          expect(toBinary(message, fromBinary(message, bytes))).toEqual(theirs);
          expect(plainBytes(fromBytes(decodeOf(message), theirs))).toEqual(plainBytes(full(message, value)));
        }),
        { numRuns },
      );
    });

    test("refuses changed and cut bytes with a CodecError, or reads them", () => {
      const change = fc.record({ at: fc.nat(), byte: fc.nat(255), cut: fc.boolean() });
      fc.assert(
        fc.property(values(message, depth), fc.array(change, { minLength: 1, maxLength: 5 }), (value, changes) => {
          let bytes = toBytes(encodeOf(message), value);
          for (const { at, byte, cut } of changes) {
            if (bytes.length === 0) break;
            bytes[at % bytes.length] = byte;
            if (cut) bytes = bytes.slice(0, at % bytes.length);
          }
          decodesOrRefuses(message, bytes);
        }),
        { numRuns },
      );
    });

    test("refuses random bytes with a CodecError, or reads them", () => {
      fc.assert(
        fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => decodesOrRefuses(message, bytes)),
        { numRuns },
      );
    });

    test("steps over fields that it does not know", () => {
      const unknown = Buffer.from("d0fa0301" + "dafa0303616263" + "ddfa0301020304" + "d9fa030102030405060708", "hex");
      fc.assert(
        fc.property(values(message, 1), (value) => {
          const bytes = Buffer.concat([unknown, toBytes(encodeOf(message), value), unknown]);
          expect(plainBytes(fromBytes(decodeOf(message), bytes))).toEqual(plainBytes(full(message, value)));
        }),
        { numRuns: 10 },
      );
    });
  });
}

test("a message nested without end is refused", () => {
  let bytes = new Uint8Array(0);
  for (let i = 0; i < 100; i++) bytes = Uint8Array.of(50, ...toBytes((writer) => writer.varint(bytes.length), undefined), ...bytes);
  expect(() => fromBytes(codec.decodeFailure, bytes)).toThrow("it nests deeper than 32");
});

test("text in any encoding reads as the standard decoder has it, short and long", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
      const message = toBytes((writer) => writer.field(10, bytes), undefined);
      expect(fromBytes(codec.decodeErrorDetail, message).reason).toBe(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
    }),
    { numRuns: 1000 },
  );
});

test("a number above 2^53 is refused", () => {
  const above = Uint8Array.of(16, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1);
  expect(() => fromBytes(codec.decodeDurableRef, above)).toThrow(CodecError);
});
