/** Several waits at a time. */

/** What `work` makes of each item, in their order; at most `count` at one time. After a failure nothing more is begun. */
export async function inParallel<Item, Result>(
  items: readonly Item[],
  count: number,
  work: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const queue = items.entries();
  let hasFailed = false;
  const lane = async () => {
    for (const [at, item] of queue) {
      if (hasFailed) return;
      try {
        results[at] = await work(item);
      } catch (error) {
        hasFailed = true;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(count, items.length) }, lane));
  return results;
}

/**
 * What `work` finds in the first item in which it finds something; at most `count` at one time, so as many behind that one
 * may have been looked at for nothing. What fails behind it does not count.
 */
export async function firstFound<Item, Result>(
  items: readonly Item[],
  count: number,
  work: (item: Item) => Promise<Result | undefined>,
): Promise<Result | undefined> {
  const ahead: Promise<Result | undefined>[] = [];
  const rest = items.values();
  const begin = () => {
    const { done, value } = rest.next();
    if (done === true) return;
    const result = work(value);
    // Whoever takes it has what it rejects with.
    result.catch(() => {});
    ahead.push(result);
  };
  for (let i = 0; i < count; i++) begin();
  for (let next = ahead.shift(); next !== undefined; next = ahead.shift()) {
    const found = await next;
    if (found !== undefined) return found;
    begin();
  }
  return undefined;
}
