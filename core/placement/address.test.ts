import { expect, test } from "bun:test";
import { addressProblem, isLoopbackAddress, splitAddress } from "./address.ts";

test.each([
  "127.0.0.1:7072",
  "127.0.0.1",
  "127.1.2.3:1",
  "127.1:80",
  "localhost:7072",
  "LOCALHOST.",
  "node-1.localhost:7072",
  "ip6-localhost:1",
  "[::1]:7072",
  "::1",
  "[::1]",
  "[0:0:0:0:0:0:0:1]:7072",
  "[0000::0001]:7072",
  "[::ffff:127.0.0.1]:7072",
  "::ffff:127.9.9.9",
  "[::ffff:7f00:1]:7072",
])("%s is reached from its own machine only", (address) => expect(isLoopbackAddress(address)).toBe(true));

test.each([
  "10.0.0.1:7072",
  "128.0.0.1",
  "1.127.0.0:1",
  "127.example.org:7072",
  "localhost.example.org:7072",
  "mylocalhost:7072",
  "[::2]:7072",
  "[fe80::1]:7072",
  "[2001:db8::1]:7072",
  "[::11]:7072",
  "[::ffff:10.0.0.1]:7072",
  "::",
  "node-1:7072",
])("%s is not", (address) => expect(isLoopbackAddress(address)).toBe(false));

test("an advertised address is host:port, and not that of any machine", () => {
  for (const good of ["a:1", "10.0.0.1:65535", "[2001:db8::1]:7072", "[fe80::1%eth0]:7072", "node-1.example.org:7072"])
    expect([good, addressProblem(good)]).toEqual([good, undefined]);
  for (const bad of [
    "",
    "a",
    "a:",
    ":1",
    "a:0",
    "a:65536",
    "a:x",
    "a b:1",
    "2001:db8::1:7072",
    "http://a:1",
    "[::1]",
    `${"a".repeat(300)}:1`,
  ])
    expect([bad, addressProblem(bad)]).toEqual([bad, expect.stringMatching(/^is not/)]);
  for (const any of ["0.0.0.0:7072", "[::]:7072", "0:7072", "[0:0::0]:7072"])
    expect([any, addressProblem(any)]).toEqual([any, expect.stringContaining("any machine")]);
  expect(splitAddress("[2001:db8::1]:7072")).toEqual({ host: "2001:db8::1", port: 7072 });
});
