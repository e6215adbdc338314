/** Which task goes to which worker. */
export { ReadyQueue, type ReadyTask } from "./ready-queue.ts";
export { type Session, serves, WorkerPool } from "./worker-pool.ts";
