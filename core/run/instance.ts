/** Names of runs that nobody named. */

/** Begins an instance name made for one start; it never gets a second generation. */
export const instancePrefix = "wf_";
