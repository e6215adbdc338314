/** What goes between a node and the thread that seals for it; buffers change hands and are not copied, but for the batches. */
import type { Index } from "#core/base";
import type { Damage } from "../../corruption-error.ts";
import type { RowTableOptions } from "./row-table.ts";
import type { PackedObject } from "./seal-work.ts";
import type { SealedSegment } from "./summary.ts";

export type SealRequest =
  /** Forgets what came before. */
  | ({ readonly kind: "begin" } & RowTableOptions)
  | { readonly kind: "batch"; readonly batch: Uint8Array }
  | { readonly kind: "end"; readonly lastIndex: Index }
  | { readonly kind: "pack"; readonly plain: Uint8Array };

/** One for each request, in order. */
export type SealReply =
  | { readonly kind: "taken" }
  | { readonly kind: "sealed"; readonly sealed: SealedSegment }
  | { readonly kind: "packed"; readonly packed: PackedObject }
  | { readonly kind: "damaged"; readonly damage: Damage }
  | { readonly kind: "failed"; readonly message: string };
