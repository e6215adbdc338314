/**
 * Native parts that the executable carries. The build puts another module in this one's place,
 * with the files of dist/cache; in a source run there are none, and they are found where they lie.
 */
import type { AssetFolder } from "./folder.ts";

export const embedded: readonly AssetFolder[] | undefined = undefined;
