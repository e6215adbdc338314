/** What tests of lists ask for. */
import type { ListRequest } from "#proto";

export const allRuns: ListRequest = {
  namespace: "",
  status: 0,
  type: "",
  limit: 0,
  pageToken: "",
  query: "",
  schedules: false,
  channels: false,
  deadLetters: false,
};
