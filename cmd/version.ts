/** The product's version, from the one place that states it. */
import manifest from "../package.json" with { type: "json" };

export const version: string = manifest.version;
