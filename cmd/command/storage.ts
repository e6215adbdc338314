/** `hop storage`: what object storage has of a cluster, by namespace, and what waits for it. */
import type { ShardInfo } from "#proto";
import type { Manifest } from "#store";
import { type ColdOptions, ColdPlace } from "../cold/cold-place.ts";
import { type NamespaceUse, type ObjectsUse, type StorageUse, storageUse } from "../cold/storage-use.ts";
import { withRemote } from "../connect.ts";
import type { Context, GlobalOptions } from "../context.ts";
import { type ExitCode, exit } from "../failure.ts";
import type { Output } from "../output.ts";
import { allPages } from "../pages.ts";
import { bytesText } from "../size.ts";
import { visible } from "../terminal.ts";
import { rowsMax } from "./cluster.ts";

export interface StorageOptions extends GlobalOptions, ColdOptions {
  readonly expired?: boolean;
}

/** Records of shards that wait for object storage. */
interface Hot {
  readonly records: number;
  readonly shards: number;
}

/** Asks the cluster too where it is named: what is not sealed, only that knows. */
export async function storage(context: Context, options: StorageOptions): Promise<ExitCode> {
  const { output, env } = context;
  const progress = output.progress();
  await using place = await ColdPlace.open(options, env);
  progress.update("reading manifests");
  const manifests = await place.newestManifests();
  const isNamed = options.server !== undefined || (env.HOP_SERVER ?? "") !== "";
  const hot = isNamed ? await hotOf(context, options, manifests) : undefined;
  progress.update("adding up");
  const use = await storageUse(place, manifests, { countsExpired: options.expired === true });
  progress.done();
  if (output.isForPeople) show(output, use, hot);
  else if (output.format === "ids") for (const { namespace } of use.namespaces) output.line(namespace);
  else output.json({ cluster: place.cluster, ...use, notSealed: hot ?? null });
  return exit.ok;
}

function hotOf(context: Context, options: StorageOptions, manifests: readonly Manifest[]): Promise<Hot> {
  const through = new Map<number, number>(manifests.map((each) => [each.shard, each.through]));
  return withRemote(context, options, async ({ cluster }) => {
    const shards = await allPages<ShardInfo>(rowsMax, async (page) => {
      const reply = await cluster.shards(page);
      return { items: reply.shard, next: reply.nextPageToken };
    });
    const waiting = shards
      .filter(({ shard }) => shard !== 0)
      .map(({ shard, lastIndex }) => Math.max(0, lastIndex - (through.get(shard) ?? 0)))
      .filter((records) => records > 0);
    return { records: waiting.reduce((sum, each) => sum + each, 0), shards: waiting.length };
  });
}

const many = (count: number, what: string) => `${count} ${what}${count === 1 ? "" : "s"}`;

function show(output: Output, use: StorageUse, hot: Hot | undefined): void {
  const isCounted = use.namespaces.some(({ expired }) => expired !== undefined);
  output.table(
    [
      { title: "NAMESPACE", value: ({ namespace }) => (namespace === "" ? "(none)" : visible(namespace)) },
      { title: "EVENTS", value: ({ events }) => String(events), align: "right" },
      { title: "SIZE", value: ({ bytes }) => bytesText(bytes), align: "right" },
      { title: "SEGMENTS", value: ({ segments }) => String(segments), align: "right" },
      ...(isCounted ? [{ title: "EXPIRED", value: ({ expired }: NamespaceUse) => String(expired ?? 0), align: "right" } as const] : []),
    ],
    use.namespaces,
  );
  const line = (name: string, { count, bytes }: ObjectsUse) =>
    output.line(`${name.padEnd(12)} ${many(count, "object")}, ${bytesText(bytes)}`);
  output.line("");
  line("segments", use.segments);
  line("states", use.checkpoints);
  line("records", use.records);
  line("blobs", use.blobs);
  line("unnamed", use.unnamed);
  if (hot !== undefined) output.line(`${"not sealed".padEnd(12)} ${many(hot.records, "record")} of ${many(hot.shards, "shard")}`);
  output.say(
    "Events, and objects that manifests name, are exact as of the newest manifests; the size of a segment that namespaces share is divided by their events; blobs and unnamed objects are as listed now",
  );
}
