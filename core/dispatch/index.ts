/** Which task goes to which worker. */
export { ReadyQueue, type ReadyTask } from "./ready-queue.ts";
export { type Session, WorkerPool } from "./worker-pool.ts";
