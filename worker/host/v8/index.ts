/** The V8 mode: a host for TypeScript workflows. */
export type { V8Assets } from "./assets.ts";
export { developmentAssets } from "./assets.ts";
export type { V8Limits } from "./bundles.ts";
export type { GuestLogLine, V8HostOptions } from "./v8-host.ts";
export { V8Host } from "./v8-host.ts";
