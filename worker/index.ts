/** Workers: what connects to servers, executes activities and runs workflow code. */
export { activitiesOf, loadActivities } from "./activity/activity-module.ts";
export { type BlobSource, cachedBlobs, grpcBlobs } from "./blob-source.ts";
export { BundleError } from "./bundle/bundle-error.ts";
export { type Bundle, type BundleOptions, bundleWorkflows } from "./bundle/bundler.ts";
export { grpcBlobSource, grpcConnector, type ServerAddress } from "./connector.ts";
export type { BundleSource, GuestHost } from "./host/guest-host.ts";
export { developmentAssets, type V8Assets } from "./host/v8/assets.ts";
export { type GuestLogLine, V8Host, type V8HostOptions } from "./host/v8/v8-host.ts";
export type { LogLevel, LogRecord, OnLog } from "./log.ts";
export type { Connect } from "./session.ts";
export { startWorker, type Worker, type WorkerOptions } from "./start.ts";
