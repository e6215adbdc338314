/** Makes bundles of workflow files. */
export type { Artefact } from "./artefact.ts";
export { ArtefactError, artefactHash, decodeArtefact } from "./artefact.ts";
export { BundleError } from "./bundle-error.ts";
export type { Bundle, BundleOptions } from "./bundler.ts";
export { bundleWorkflows } from "./bundler.ts";
