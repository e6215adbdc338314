/** A Core node: storage, shards, services. */
export type { NodeConfig } from "./config.ts";
export { createLogger, type Fields, type Level, type Logger, type LoggerOptions, noLogger } from "./observe/logger.ts";
export { type BackupFault, type BackupFigures, verifyBackupAt } from "./restore/verify-backup.ts";
export type { RunningNode } from "./running-node.ts";
export { type IdentitySource, localIdentity } from "./service/identity.ts";
export { startNode } from "./start.ts";
export { zones } from "./zones.ts";
