/** Lists that the server gives page by page. */

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

/** At most `limit` items. */
export async function allPages<Item>(limit: number, ask: (page: PageAsked) => Promise<PageGiven<Item>>): Promise<Item[]> {
  const all: Item[] = [];
  let pageToken = "";
  do {
    const { items, next } = await ask({ limit: Math.min(pageSize, limit - all.length), pageToken });
    for (const item of items) all.push(item);
    pageToken = next;
  } while (pageToken !== "" && all.length < limit);
  return all;
}
