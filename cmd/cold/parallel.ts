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
