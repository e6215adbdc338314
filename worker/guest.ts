/** What executes workflow code and activities in one process, with no server to connect to: the test kit is made of it. */
export { failureOf } from "./activity/activity-failure.ts";
export { artefactHash, decodeArtefact } from "./bundle/artefact.ts";
export { BundleError } from "./bundle/bundle-error.ts";
export { bundleWorkflows } from "./bundle/bundler.ts";
export { Executor } from "./executor.ts";
export type { GuestHost } from "./host/guest-host.ts";
export { VmHost } from "./host/vm/vm-host.ts";
