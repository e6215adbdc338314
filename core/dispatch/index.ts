/** Which task goes to which worker. */
export { ReadyQueue, type ReadyTask } from "./ready-queue.ts";
export { type HeldTask, SessionCapacity } from "./session-capacity.ts";
export { type Session, WorkerPool } from "./worker-pool.ts";
