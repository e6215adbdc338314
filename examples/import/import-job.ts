/** An import that may be cancelled between its batches, and cleans up whatever happens. */
import { activity, durable } from "@hopskip/runtime";

export interface Job {
  readonly id: string;
  readonly batches: readonly { readonly rows: number }[];
}

export const importJob = durable(async (job: Job) => {
  try {
    for (const batch of job.batches) {
      await activity("import_batch", batch); // cancellation checked here
    }
  } finally {
    await activity("cleanup", job.id); // always runs, even on cancel
  }
});
