/** `hop deployment`: which version of a workflow new starts take, and what older ones still run on. */
import { HopError, toHex } from "#core/base";
import { type Deployment, type DeploymentVersion, liveStatuses } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, namespaceName, orInterrupted, timeoutMs, wholeNumber } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { timeText } from "../event-text.ts";
import { CommandError, type ExitCode, exit, UsageError } from "../failure.ts";
import { whoText } from "../history.ts";
import type { Listing } from "../output.ts";
import { allRuns } from "../pages.ts";
import type { Remote } from "../remote.ts";
import { visible } from "../terminal.ts";

export interface RouteOptions extends GlobalOptions {
  readonly reason?: string;
}

const pollMs = 1000;

interface Row extends DeploymentVersion {
  readonly of: Deployment;
}

/** How new starts come to a version. */
function roleOf({ of, version }: Row): string {
  if (of.version === version) return of.rampPercent > 0 ? `current, ${100 - of.rampPercent} %` : "current";
  if (of.rampPercent > 0 && of.rampVersion === version) return `ramp, ${of.rampPercent} %`;
  return of.previous === version ? "previous" : "";
}

const listing: Listing<Row> = {
  columns: [
    { title: "TYPE", value: ({ of }) => of.type, shrink: true },
    { title: "VERSION", value: ({ version }) => String(version), align: "right" },
    { title: "STARTS", value: roleOf },
    { title: "BUNDLE", value: ({ bundle }) => toHex(bundle).slice(0, 12) },
    { title: "DEPLOYED", value: ({ deployedMs }) => timeText(deployedMs) },
    { title: "BY", value: ({ identity }) => (identity === undefined ? "" : whoText(identity)), shrink: true, drop: true },
  ],
  id: ({ bundle }) => toHex(bundle),
  json: (row) => ({
    type: row.of.type,
    version: row.version,
    starts: roleOf(row),
    bundle: toHex(row.bundle),
    deployedAt: timeText(row.deployedMs),
    by: row.identity === undefined ? null : whoText(row.identity),
  }),
  empty: "Nothing is deployed",
};

export async function deploymentList(context: Context, options: GlobalOptions, type?: string): Promise<ExitCode> {
  const namespace = namespaceName(options, context.env);
  return withRemote(context, options, async (remote) => {
    const { deployment } = await remote.listDeployments(namespace);
    const wanted = type === undefined ? deployment : [deployed(deployment, { namespace, type })];
    context.output.list(
      wanted.flatMap((of) => of.known.map((version) => ({ ...version, of }))),
      listing,
    );
    return exit.ok;
  });
}

function deployed(all: readonly Deployment[], { namespace, type }: { readonly namespace: string; readonly type: string }): Deployment {
  const found = all.find((one) => one.type === type);
  if (found !== undefined) return found;
  throw new HopError("WORKFLOW_NOT_DEPLOYED", `Workflow ${JSON.stringify(type)} is not deployed in namespace ${namespace}`);
}

const versionOf = (text: string) => wholeNumber(text, "version", { min: 1, max: 2 ** 32 - 1, next: "see them with `hop deployment list`" });

export async function deploymentPromote(context: Context, options: RouteOptions, type: string, version: string): Promise<ExitCode> {
  const wanted = versionOf(version);
  return route(context, options, () => Promise.resolve({ type, version: wanted }));
}

export async function deploymentRamp(
  context: Context,
  options: RouteOptions,
  type: string,
  version: string,
  percent: string,
): Promise<ExitCode> {
  const wanted = versionOf(version);
  const share = wholeNumber(percent.replace(/%$/, ""), "share", { min: 0, max: 99, next: "for all of them: hop deployment promote" });
  return route(context, options, () => Promise.resolve({ type, version: wanted, ramp: true, percent: share }));
}

/** To the version that was current before; a ramp ends. */
export async function deploymentRollback(context: Context, options: RouteOptions, type: string): Promise<ExitCode> {
  const namespace = namespaceName(options, context.env);
  return route(context, options, async (remote) => {
    const { previous, version } = deployed((await remote.listDeployments(namespace)).deployment, { namespace, type });
    if (previous > version) {
      const message = `Cannot roll ${JSON.stringify(type)} back: version ${version} is current, and the newer version ${previous} was before it`;
      throw new UsageError(message, { next: "it may have been rolled back already; promote a version by its number" });
    }
    if (previous > 0) return { type, version: previous };
    throw new UsageError(`Cannot roll ${JSON.stringify(type)} back: version ${version} is the first that was current`);
  });
}

type Wanted = (
  remote: Remote,
) => Promise<{ readonly type: string; readonly version: number; readonly ramp?: boolean; readonly percent?: number }>;

async function route(context: Context, options: RouteOptions, wanted: Wanted): Promise<ExitCode> {
  const namespace = namespaceName(options, context.env);
  const { output } = context;
  return withRemote(context, options, async (remote) => {
    const of = await remote.routeDeployment({ namespace, reason: options.reason ?? "", ...(await wanted(remote)) });
    const rows = of.known.map((version) => ({ ...version, of })).filter((row) => roleOf(row) !== "");
    if (!output.isForPeople) output.list(rows, listing);
    else if (of.rampPercent === 0) output.say(`New runs of ${visible(of.type)} start on version ${of.version}`);
    else {
      const rest = `${100 - of.rampPercent} % on version ${of.version}`;
      output.say(`Of new runs of ${visible(of.type)} ${of.rampPercent} % start on version ${of.rampVersion}, ${rest}`);
    }
    return exit.ok;
  });
}

/** Waits until no live run is on the version any more. New starts must not go there. */
export async function deploymentDrain(context: Context, options: GlobalOptions, type: string, version: string): Promise<ExitCode> {
  const namespace = namespaceName(options, context.env);
  const wanted = versionOf(version);
  const waitMs = timeoutMs(options);
  const { output } = context;
  const drain = async (remote: Remote): Promise<ExitCode> => {
    const of = deployed((await remote.listDeployments(namespace)).deployment, { namespace, type });
    const bundle = drainable(of, wanted);
    await emptied(context, remote, { namespace, type, version: wanted, bundle, waitMs });
    if (output.isForPeople) output.say(`No live run is on version ${wanted} of ${visible(type)}`);
    else if (output.format !== "ids") output.json({ type, version: wanted, live: 0 });
    return exit.ok;
  };
  return withRemote(context, options, drain, { isPatient: true });
}

/** The version's bundle in hex. Throws `UsageError` where it is not known, or starts still go there. */
function drainable(of: Deployment, version: number): string {
  const what = `Cannot drain version ${version} of ${JSON.stringify(of.type)}`;
  const found = of.known.find((one) => one.version === version);
  if (found === undefined) throw new UsageError(`${what}: it is not among those that are known`);
  const role = roleOf({ ...found, of });
  if (role !== "" && role !== "previous")
    throw new UsageError(`${what}: new runs start on it (${role})`, { next: "promote another version first" });
  return toHex(found.bundle);
}

interface OnVersion {
  readonly namespace: string;
  readonly type: string;
  readonly bundle: string;
}

interface Draining extends OnVersion {
  readonly version: number;
  /** 0 = as long as it takes. */
  readonly waitMs: number;
}

async function emptied(context: Context, remote: Remote, { namespace, type, version, bundle, waitMs }: Draining): Promise<void> {
  const endsAt = waitMs === 0 ? Number.POSITIVE_INFINITY : performance.now() + waitMs;
  const progress = context.output.progress();
  try {
    for (;;) {
      const left = await liveOn(remote, { namespace, type, bundle });
      if (left === 0) return;
      const told = `${left} live ${left === 1 ? "run is" : "runs are"} on version ${version} of ${visible(type)}`;
      progress.update(told);
      if (performance.now() >= endsAt) {
        const next = `list them: hop workflow list --type ${type} --query "bundle = '${bundle}'"`;
        throw new CommandError(exit.unavailable, `Cannot wait longer than ${formatDuration(waitMs)}: ${told}`, { next });
      }
      await orInterrupted(context.interrupt, Bun.sleep(Math.min(pollMs, Math.max(0, endsAt - performance.now()))));
    }
  } finally {
    progress.done();
  }
}

/** How many live runs are on a version: those whose compensations are being executed are, too. */
export async function liveOn(remote: Pick<Remote, "list">, { namespace, type, bundle }: OnVersion): Promise<number> {
  let count = 0;
  for (const status of liveStatuses) count += (await allRuns(remote, { namespace, type, status, query: `bundle = '${bundle}'` })).length;
  return count;
}
