/** Health and reflection over a real server, as other tools use them. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { create, createFileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Client, credentials, Server, ServerCredentials, type ServiceError, status } from "@grpc/grpc-js";
import {
  bufferView,
  HealthCheckRequestSchema,
  HealthCheckResponseSchema,
  healthPaths,
  reflectionPaths,
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
  ServingStatus,
} from "#proto/descriptors";
import { HealthService } from "./health.ts";
import { addReflection } from "./reflection.ts";

const identity = (bytes: Buffer) => bytes;
const health = new HealthService();
const server = new Server();
let client: Client;

beforeAll(async () => {
  health.addTo(server);
  addReflection(server);
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
});

afterAll(() => {
  client.close();
  health.close();
  server.forceShutdown();
});

const asked = (service: string) => bufferView(toBinary(HealthCheckRequestSchema, create(HealthCheckRequestSchema, { service })));
const statusIn = (bytes: Buffer) => fromBinary(HealthCheckResponseSchema, bytes).status;

function check(request: Buffer): Promise<ServingStatus | { code: status }> {
  return new Promise((resolve) => {
    client.makeUnaryRequest(healthPaths.check, identity, identity, request, (error: ServiceError | null, reply?: Buffer) =>
      resolve(error === null ? statusIn(reply as Buffer) : { code: error.code }),
    );
  });
}

describe("health", () => {
  test("Check tells of the server and its services, and refuses others", async () => {
    health.set(false);
    expect(await check(asked(""))).toBe(ServingStatus.NOT_SERVING);
    health.set(true);
    expect(await check(asked(""))).toBe(ServingStatus.SERVING);
    expect(await check(asked("hopskip.v1.WorkflowClient"))).toBe(ServingStatus.SERVING);
    expect(await check(asked("hopskip.v1.Nothing"))).toEqual({ code: status.NOT_FOUND });
    expect(await check(Buffer.from([0xff, 0xff]))).toEqual({ code: status.INVALID_ARGUMENT });
  });

  test("Watch sends the status at once and at each change", async () => {
    health.set(true);
    const call = client.makeServerStreamRequest(healthPaths.watch, identity, identity, asked(""));
    const seen: ServingStatus[] = [];
    for await (const bytes of call) {
      seen.push(statusIn(bytes as Buffer));
      if (seen.length === 1) health.set(false);
      if (seen.length === 2) health.set(true);
      if (seen.length === 3) break;
    }
    expect(seen).toEqual([ServingStatus.SERVING, ServingStatus.NOT_SERVING, ServingStatus.SERVING]);
  });
});

type Question = ServerReflectionRequest["messageRequest"];

async function reflect(path: string, questions: Question[]): Promise<ServerReflectionResponse[]> {
  const call = client.makeBidiStreamRequest(path, identity, identity);
  const out: ServerReflectionResponse[] = [];
  for (const messageRequest of questions) {
    call.write(bufferView(toBinary(ServerReflectionRequestSchema, create(ServerReflectionRequestSchema, { messageRequest }))));
  }
  call.end();
  for await (const bytes of call) out.push(fromBinary(ServerReflectionResponseSchema, bytes as Buffer));
  return out;
}

describe("reflection", () => {
  test.each(Object.entries(reflectionPaths))("%s lists the services, and one answer holds all that a service needs", async (_, path) => {
    const [list, symbol, again] = await reflect(path, [
      { case: "listServices", value: "" },
      { case: "fileContainingSymbol", value: "hopskip.v1.WorkflowClient.StartWorkflow" },
      { case: "fileByFilename", value: "hopskip/v1/dispatch.proto" },
    ]);
    const services =
      list?.messageResponse.case === "listServicesResponse" ? list.messageResponse.value.service.map(({ name }) => name) : [];
    expect(services).toEqual([
      "hopskip.v1.WorkflowClient",
      "hopskip.v1.Dispatch",
      "hopskip.v1.ClusterAdmin",
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
    ]);
    // The file asked for comes first, as is the custom; a registry wants imports first.
    const files = symbol?.messageResponse.case === "fileDescriptorResponse" ? symbol.messageResponse.value.fileDescriptorProto : [];
    const set = create(FileDescriptorSetSchema, { file: files.toReversed().map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes)) });
    const start = createFileRegistry(set).getService("hopskip.v1.WorkflowClient")?.method.startWorkflow;
    expect(start?.input.fields.map((field) => field.name)).toContain("idempotency_key");
    expect(again?.messageResponse.case).toBe("fileDescriptorResponse");
  });

  test("what the schema does not have is answered, and the stream goes on", async () => {
    const answers = await reflect(reflectionPaths.v1, [
      { case: "fileByFilename", value: "no/such.proto" },
      { case: "fileContainingSymbol", value: "no.Such" },
      { case: "allExtensionNumbersOfType", value: "hopskip.v1.Payload" },
      { case: undefined },
      { case: "listServices", value: "" },
    ]);
    expect(answers.map((answer) => answer.messageResponse.case)).toEqual([
      "errorResponse",
      "errorResponse",
      "allExtensionNumbersResponse",
      "errorResponse",
      "listServicesResponse",
    ]);
  });
});
