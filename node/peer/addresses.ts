/** What names of nodes stand for. */
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";

export type Resolve = (host: string) => Promise<readonly string[]>;

/** All addresses of `host` as of now, each once; an address stands for itself. Rejects where there are none. */
export const resolveHost: Resolve = async (host) => {
  if (isIP(host) !== 0) return [host];
  const found = await lookup(host, { all: true });
  return [...new Set(found.map(({ address }) => address))];
};
