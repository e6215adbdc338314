import { describe, expect, test } from "bun:test";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { HopError, InvariantError, type Reason, reasons } from "#core/base";
import { CodecError } from "#proto";
import { asHopError, codeOf, errorDetailKey, fromStatus, toDetail, toStatus } from "./status.ts";

const overTheWire = (error: HopError): ServiceError => {
  const { code, details, metadata } = toStatus(error);
  const headers = metadata.toHttp2Headers();
  return Object.assign(new Error(details), { code, details, metadata: Metadata.fromHttp2Headers(headers as never) });
};

describe("toStatus() and fromStatus()", () => {
  test.each(Object.keys(reasons) as Reason[])("carry %s there and back", (reason) => {
    const error = new HopError(reason, `Cannot do it: got 1, want 2`, { retryAfterMs: 250, epoch: 7 });
    const back = fromStatus(overTheWire(error));
    expect([back.reason, back.message, back.retryAfterMs, back.epoch]).toEqual([reason, error.message, 250, 7]);
    expect(codeOf(reason)).toBeGreaterThan(status.OK);
  });

  test("a client's retry table tells what is worth trying again", () => {
    const unavailable = (Object.keys(reasons) as Reason[]).filter((reason) => codeOf(reason) === status.UNAVAILABLE);
    expect(unavailable.sort()).toEqual(["NOT_LEADER", "STORE_UNAVAILABLE"]);
    expect(codeOf("PAYLOAD_TOO_LARGE")).toBe(status.INVALID_ARGUMENT);
  });

  test.each(["x".repeat(100_000), "🦘".repeat(100_000), "é".repeat(100_000)])("long text stays within what headers may hold", (message) => {
    const wire = overTheWire(new HopError("BAD_REQUEST", message));
    const detail = wire.metadata.get(errorDetailKey)[0] as Buffer;
    expect(detail.length).toBeLessThan(2200);
    expect(encodeURI(wire.details).length).toBeLessThan(600);
    expect(wire.details).toEndWith("…");
    expect(wire.details.isWellFormed()).toBe(true);
    expect(fromStatus(wire).message.startsWith(message.slice(0, 20))).toBe(true);
  });

  test("a status without a readable detail is told by its code", () => {
    const bare = (code: status) => fromStatus(Object.assign(new Error("x"), { code, details: "gone", metadata: new Metadata() }));
    expect([bare(status.UNAVAILABLE).reason, bare(status.DEADLINE_EXCEEDED).reason, bare(status.UNKNOWN).reason]).toEqual([
      "STORE_UNAVAILABLE",
      "BUDGET_EXPIRED",
      "INTERNAL",
    ]);
    const metadata = new Metadata();
    metadata.set(errorDetailKey, Buffer.from([255, 255, 255]));
    expect(fromStatus(Object.assign(new Error("x"), { code: status.NOT_FOUND, details: "y", metadata })).message).toBe("y");
  });
});

describe("asHopError()", () => {
  test("keeps refusals, and tells nothing of the inside of a bug", () => {
    const refusal = new HopError("RUN_CLOSED", "closed");
    expect(asHopError(refusal)).toBe(refusal);
    expect(asHopError(new CodecError("Cannot read a number")).reason).toBe("BAD_REQUEST");
    for (const bug of [new InvariantError("secret 123"), new TypeError("secret 123"), "secret 123"]) {
      const error = asHopError(bug);
      expect(error.reason).toBe("INTERNAL");
      expect(error.message).not.toContain("secret");
      expect(error.cause).toBe(bug);
    }
  });

  test("toDetail() takes Core's rejections as well", () => {
    expect(toDetail({ reject: "BUFFER_FULL", message: "full", retryAfterMs: 5 })).toEqual({
      reason: "BUFFER_FULL",
      message: "full",
      retryAfterMs: 5,
      epoch: 0,
    });
  });
});
