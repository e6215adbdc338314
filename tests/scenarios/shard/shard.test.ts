import { join } from "node:path";
import { scenarios } from "../../datadriven.ts";
import { openShard } from "./verbs.ts";

scenarios(join(import.meta.dir), openShard);
