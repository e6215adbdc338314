/** Lists that the server gives page by page. */
import type { ListRequestInit, RunSummary } from "#proto";
import type { Remote } from "./remote.ts";

export interface PageAsked {
  readonly limit: number;
  readonly pageToken: string;
}

export interface PageGiven<Item> {
  readonly items: readonly Item[];
  /** Empty = it was the last one. */
  readonly next: string;
}

const pageSize = 1000;

/** Page by page, as long as they are taken. */
export async function* pages<Item>(ask: (pageToken: string) => Promise<PageGiven<Item>>): AsyncGenerator<readonly Item[]> {
  let pageToken = "";
  do {
    const { items, next } = await ask(pageToken);
    yield items;
    pageToken = next;
  } while (pageToken !== "");
}

/** At most `limit` items. */
export async function allPages<Item>(limit: number, ask: (page: PageAsked) => Promise<PageGiven<Item>>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const items of pages((pageToken) => ask({ limit: Math.min(pageSize, limit - all.length), pageToken }))) {
    for (const item of items) all.push(item);
    if (all.length >= limit) break;
  }
  return all;
}

/** The runs that fit the filter, newest first; at most `limit` of them. */
export function allRuns(
  remote: Pick<Remote, "list">,
  filter: Omit<ListRequestInit, keyof PageAsked>,
  limit = Number.POSITIVE_INFINITY,
): Promise<RunSummary[]> {
  return allPages(limit, async (page) => {
    const { run, nextPageToken } = await remote.list({ ...filter, ...page });
    return { items: run, next: nextPageToken };
  });
}
