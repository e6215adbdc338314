/** Descriptors against the codec: names must fit, and bytes must be those of protobuf-es. */
import { describe, expect, test } from "bun:test";
import type { DescMessage } from "@bufbuild/protobuf";
import { create, createFileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { clientMethods, connectPath, healthPaths, reflectionPaths, schemaFiles, services, sessionPath } from "./descriptors.ts";
import { WorkflowClient } from "./gen/hopskip/v1/client_pb.js";

describe("client methods", () => {
  test("cover every method of the service but the session, under the service's own paths", () => {
    const rest = WorkflowClient.methods.filter((method) => method.methodKind !== "bidi_streaming");
    expect(Object.keys(clientMethods).sort()).toEqual(rest.map((method) => method.localName).sort());
    for (const method of rest) {
      const built = clientMethods[method.localName as keyof typeof clientMethods];
      expect(built.path).toBe(`/hopskip.v1.WorkflowClient/${method.name}`);
      expect(built.responseStream).toBe(method.methodKind === "server_streaming");
    }
  });

  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");

  /** Sets every scalar field, so that a codec of another message can't read the same thing. */
  function filled(desc: DescMessage): Uint8Array {
    const message = create(desc) as unknown as Record<string, unknown>;
    for (const field of desc.fields) {
      if (field.fieldKind !== "scalar") continue;
      const zero = message[field.localName];
      if (typeof zero === "string") message[field.localName] = field.name;
      else if (typeof zero === "boolean") message[field.localName] = true;
      else if (zero instanceof Uint8Array) message[field.localName] = new Uint8Array([field.number]);
      else message[field.localName] = typeof zero === "bigint" ? 7n : 7;
    }
    return toBinary(desc, message as never);
  }

  test("read and write the bytes of the message that the descriptor names", () => {
    for (const method of WorkflowClient.methods) {
      if (method.methodKind === "bidi_streaming") continue;
      const built = clientMethods[method.localName as keyof typeof clientMethods];
      const request = filled(method.input);
      expect(hex(built.requestSerialize(built.requestDeserialize(request) as never))).toBe(hex(request));
      const response = filled(method.output);
      expect(hex(built.responseSerialize(built.responseDeserialize(response) as never))).toBe(hex(response));
    }
  });
});

test("stream paths are those of the protocol", () => {
  expect([sessionPath, connectPath]).toEqual(["/hopskip.v1.WorkflowClient/Session", "/hopskip.v1.Dispatch/Connect"]);
  expect(healthPaths).toEqual({ check: "/grpc.health.v1.Health/Check", watch: "/grpc.health.v1.Health/Watch" });
  expect(reflectionPaths.v1).toBe("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
  expect(reflectionPaths.v1alpha).toBe("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
});

test("schemaFiles() is a closed set from which the services can be rebuilt", () => {
  const files = schemaFiles();
  const set = create(FileDescriptorSetSchema, { file: files.map((file) => fromBinary(FileDescriptorProtoSchema, file.bytes)) });
  const registry = createFileRegistry(set);
  for (const service of services) {
    expect(registry.getService(service.typeName)?.methods.map((method) => method.name)).toEqual(
      service.methods.map((method) => method.name),
    );
  }
  const names = files.map((file) => file.name);
  for (const file of files) for (const needed of file.imports) expect(names.indexOf(needed)).toBeLessThan(names.indexOf(file.name));
  expect(files.flatMap((file) => file.symbols)).toContain("hopskip.v1.StartRequest");
});
