/**
 * The standard reflection service, in its two published versions: tools find the API without
 * its files.
 *
 * Written here because the published implementation reads .proto files from its own folder at
 * run time, which a single executable does not have.
 */

import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type Server, type ServerDuplexStream, status } from "@grpc/grpc-js";
import {
  bufferView,
  reflectionPaths,
  type SchemaFile,
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  ServerReflectionResponseSchema,
  schemaFiles,
  services,
} from "#proto/descriptors";

type Answer = NonNullable<MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"]>;
type Stream = ServerDuplexStream<Buffer, Buffer>;

const identity = (bytes: Buffer) => bytes;

export function addReflection(server: Server): void {
  // Made for the first question: a start does not pay for what few ask.
  let index: SchemaIndex | undefined;
  const serve = (call: Stream): void => {
    call.on("error", () => {});
    call.on("data", (bytes: Buffer) => {
      index ??= new SchemaIndex();
      answerTo(call, bytes, index);
    });
    call.on("end", () => call.end());
  };
  for (const path of Object.values(reflectionPaths)) server.register(path, serve as never, identity as never, identity as never, "bidi");
}

function answerTo(call: Stream, bytes: Buffer, index: SchemaIndex): void {
  let request: ServerReflectionRequest;
  try {
    request = fromBinary(ServerReflectionRequestSchema, bytes);
  } catch (error) {
    call.emit("error", { code: status.INVALID_ARGUMENT, details: `Cannot read the reflection request: ${String(error)}` });
    return;
  }
  const { host } = request;
  const messageResponse = index.answer(request.messageRequest);
  const response = create(ServerReflectionResponseSchema, { validHost: host, originalRequest: request, messageResponse });
  call.write(bufferView(toBinary(ServerReflectionResponseSchema, response)));
}

class SchemaIndex {
  private readonly byName: ReadonlyMap<string, SchemaFile>;
  private readonly bySymbol: ReadonlyMap<string, SchemaFile>;

  constructor() {
    const files = schemaFiles();
    this.byName = new Map(files.map((file) => [file.name, file]));
    this.bySymbol = new Map(files.flatMap((file) => file.symbols.map((symbol): [string, SchemaFile] => [symbol, file])));
  }

  answer(asked: ServerReflectionRequest["messageRequest"]): Answer {
    switch (asked.case) {
      case "listServices":
        return { case: "listServicesResponse", value: { service: services.map((service) => ({ name: service.typeName })) } };
      case "fileByFilename":
        return this.files(this.byName.get(asked.value), `file ${asked.value}`);
      case "fileContainingSymbol":
        return this.files(this.bySymbol.get(asked.value), `symbol ${asked.value}`);
      case "fileContainingExtension":
        return refused(status.NOT_FOUND, `extension ${asked.value.extensionNumber} of ${asked.value.containingType}`);
      case "allExtensionNumbersOfType":
        // proto3 has no extensions: a known type has none.
        if (!this.bySymbol.has(asked.value)) return refused(status.NOT_FOUND, `type ${asked.value}`);
        return { case: "allExtensionNumbersResponse", value: { baseTypeName: asked.value, extensionNumber: [] } };
      default:
        return { case: "errorResponse", value: { errorCode: status.INVALID_ARGUMENT, errorMessage: "The request asks nothing" } };
    }
  }

  /** The file and everything it imports, so that one answer is enough. */
  private files(file: SchemaFile | undefined, what: string): Answer {
    if (file === undefined) return refused(status.NOT_FOUND, what);
    const all = new Set<SchemaFile>();
    const visit = (each: SchemaFile): void => {
      if (all.has(each)) return;
      for (const name of each.imports) visit(this.byName.get(name) as SchemaFile);
      all.add(each);
    };
    visit(file);
    // Each stands before what it imports.
    return { case: "fileDescriptorResponse", value: { fileDescriptorProto: [...all].reverse().map((each) => each.bytes) } };
  }
}

function refused(errorCode: status, what: string): Answer {
  return { case: "errorResponse", value: { errorCode, errorMessage: `This server's schema has no ${what.slice(0, 200)}` } };
}
