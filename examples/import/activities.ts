/** What the import does to the world; a batch takes as many milliseconds as it has rows. */
import type { ActivityContext } from "@hopskip/activity";

export async function import_batch({ rows }: { readonly rows: number }, { signal, log }: ActivityContext) {
  await new Promise<void>((done, cancelled) => {
    const timer = setTimeout(done, rows);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      cancelled(signal.reason);
    });
  });
  log.info("imported", { rows });
  return rows;
}

export const cleanup = async (id: string) => `${id} is clean`;
