/** Addresses that nodes advertise, as text: `host:port`, an IPv6 host in brackets. Nothing is resolved here. */
import { utf8Bytes } from "#core/base";

const addressBytesMax = 300;

/** Host and port of `address`, or undefined where it is not `host:port`. */
export function splitAddress(address: string): { readonly host: string; readonly port: number } | undefined {
  const match = /^(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:[\]/]+)):(\d{1,5})$/.exec(address);
  if (match === null) return undefined;
  const port = Number(match[3]);
  return port < 1 || port > 65535 ? undefined : { host: (match[1] ?? match[2]) as string, port };
}

/** What is wrong with `address` as one to be advertised, or undefined. */
export function addressProblem(address: string): string | undefined {
  if (utf8Bytes(address) > addressBytesMax || !address.isWellFormed()) return "is not an address";
  const parts = splitAddress(address);
  if (parts === undefined) return "is not host:port";
  if (/^0+(\.0+){0,3}$/.test(parts.host) || /^[0:]+$/.test(parts.host))
    return "is the address of any machine; advertise one under which others reach this node";
  return undefined;
}

/** Whether only processes of the same machine reach `address`, a host with or without a port. */
export function isLoopbackAddress(address: string): boolean {
  const bare = splitAddress(address)?.host ?? address.replace(/^\[(.*)\]$/, "$1");
  const host = bare.toLowerCase().replace(/\.$/, "").replace(/%.*$/, "");
  if (host === "localhost" || host.endsWith(".localhost") || host === "ip6-localhost" || host === "ip6-loopback") return true;
  if (isLoopbackIpv4(host)) return true;
  if (!host.includes(":")) return false;
  const mapped = /^(?:::|(?:0{1,4}:){5})ffff:(?:0:)?(\d+\.\d+\.\d+\.\d+)$/.exec(host)?.[1];
  if (mapped !== undefined) return isLoopbackIpv4(mapped);
  if (/^(?:::|(?:0{1,4}:){5})ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}$/.test(host)) return true;
  return /^[0:]*:0*1$/.test(host);
}

const isLoopbackIpv4 = (host: string) => /^127(\.\d{1,3}){0,3}$/.test(host);
