/** Schedules, seen from outside: what starts runs of a workflow at its times. */
import {
  type DescribeReply,
  InstantOutcome,
  type ListReply,
  type ListRequestInit,
  overlapPolicies,
  RepeatedTime,
  type ScheduleCommandInit,
  type ScheduleConfigInit,
  type ScheduleReply,
  type ScheduleSpecInit,
  SkippedTime,
} from "#proto";
import { clientMethods } from "#proto/descriptors";
import { milliseconds } from "./milliseconds.ts";
import { toPayload } from "./payload.ts";
import { type Channel, call, callOnce } from "./rpc.ts";
import { type InputOf, typeName, type WorkflowRef } from "./workflow.ts";

/** When it fires: at all instants that are said here. */
export interface ScheduleTimes {
  /** Five fields (minute hour day month weekday), six with seconds first, or "@daily" and its like. */
  readonly cron?: string | readonly string[];
  /** IANA name of the zone whose clocks `cron` is about; left out: UTC. */
  readonly zone?: string;
  /** What becomes of a local time that clocks leave out: its first moment after the change ("next", so where left out), or nothing. */
  readonly skipped?: "next" | "skip";
  /** When a local time that comes twice fires; left out: "first". */
  readonly repeated?: "first" | "last" | "both";
  /** Every so many milliseconds (1000 at least), counted from 1970 and `offsetMs`. */
  readonly everyMs?: number;
  readonly offsetMs?: number;
  /** Single instants. */
  readonly at?: readonly Date[];
  /** Nothing fires before `from`, or at or after `until`. */
  readonly from?: Date;
  readonly until?: Date;
  /** Each start is put off by up to this, in milliseconds. */
  readonly jitterMs?: number;
}

/** What an instant comes to while a run that the schedule started before is live. */
export type Overlap = "skip" | "buffer-one" | "buffer-all" | "cancel-other" | "terminate-other" | "allow-all";

export interface ScheduleOptions<W extends WorkflowRef = WorkflowRef> extends ScheduleTimes {
  /** What is started, on the code that is newest then. */
  readonly workflow: W;
  readonly input?: InputOf<W>;
  /** Time each run may take in all, in milliseconds. */
  readonly deadlineMs?: number;
  /** Left out: "skip". */
  readonly overlap?: Overlap;
  /** How late a start may be where nobody could start it in time, in milliseconds; left out: a day. What was due before is missed. */
  readonly catchUpMs?: number;
  /** For people. */
  readonly note?: string;
}

export interface Backfill {
  readonly from: Date;
  readonly to: Date;
  /** All at once; else one after the other. */
  readonly atOnce?: boolean;
}

/** How it stands: `schedule` holds what it is and its last instants. */
export type ScheduleState = DescribeReply;

export interface PreviewedTime {
  readonly at: Date;
  /** With jitter. */
  readonly due: Date;
  /** Minutes by which the zone's clocks are ahead of UTC then. */
  readonly offsetMinutes: number;
  /** A change of the clocks has to do with it. */
  readonly change: "" | "skipped" | "repeated";
}

/** As the wire has it. */
function specOf(times: ScheduleTimes): ScheduleSpecInit {
  const { cron = [], zone, skipped = "next", repeated = "first", everyMs, offsetMs, at = [], from, until, jitterMs } = times;
  return {
    cron: typeof cron === "string" ? [cron] : [...cron],
    zone,
    skipped: SkippedTime[skipped],
    repeated: RepeatedTime[repeated],
    everyMs: milliseconds("everyMs", everyMs),
    offsetMs: milliseconds("offsetMs", offsetMs),
    atMs: at.map((one) => one.getTime()).sort((a, b) => a - b),
    fromMs: from?.getTime(),
    untilMs: until?.getTime(),
    jitterMs: milliseconds("jitterMs", jitterMs),
  };
}

function configOf<W extends WorkflowRef>(options: ScheduleOptions<W>): ScheduleConfigInit {
  const { workflow, input, deadlineMs, overlap = "skip", catchUpMs, note } = options;
  return {
    spec: specOf(options),
    action: { type: typeName(workflow), input: toPayload(input), deadlineMs: milliseconds("deadlineMs", deadlineMs) },
    policy: { overlap: overlapPolicies[overlap], catchUpMs: milliseconds("catchUpMs", catchUpMs) },
    note,
  };
}

export class ScheduleClient {
  private readonly channel: Channel;
  private readonly namespace: string;

  constructor(channel: Channel, namespace: string) {
    this.channel = channel;
    this.namespace = namespace;
  }

  /**
   * Makes a schedule of that id. One that is the same already is left as it is. Rejects with
   * `HopError` SCHEDULE_EXISTS where there is another one, BAD_REQUEST where it never fires.
   */
  async create<W extends WorkflowRef>(id: string, options: ScheduleOptions<W> & { readonly paused?: boolean }): Promise<ScheduleHandle> {
    const handle = this.handle(id);
    await this.change({ schedule: handle.id, kind: "create", value: { config: configOf(options), paused: options.paused } });
    return handle;
  }

  /** By its address (namespace:id), or its id in this client's namespace. */
  handle(id: string): ScheduleHandle {
    return new ScheduleHandle(this, id.includes(":") ? id : `${this.namespace}:${id}`);
  }

  /** One page, newest first; `nextPageToken` asks for the next one. */
  list(request: ListRequestInit = {}): Promise<ListReply> {
    return call(this.channel, clientMethods.listSchedules, { namespace: this.namespace, ...request });
  }

  /** When it would fire, by the rules that the server has of zones: 10 instants where `count` is left out, 1000 at most. */
  async preview(times: ScheduleTimes, options: { readonly after?: Date; readonly count?: number } = {}): Promise<PreviewedTime[]> {
    const request = { spec: specOf(times), afterMs: options.after?.getTime(), count: options.count };
    const { instant } = await call(this.channel, clientMethods.previewSchedule, request);
    return instant.map(({ atMs, dueMs, aheadMs, behind, change }) => ({
      at: new Date(atMs),
      due: new Date(dueMs),
      offsetMinutes: (behind ? -aheadMs : aheadMs) / 60_000,
      change: change as PreviewedTime["change"],
    }));
  }

  /** As the wire has it. A change that does something each time it is sent is sent once. */
  change(command: ScheduleCommandInit): Promise<ScheduleReply> {
    const isRepeatable = command.kind !== "trigger" && command.kind !== "backfill";
    return (isRepeatable ? call : callOnce)(this.channel, clientMethods.changeSchedule, command);
  }

  /** With `deleted` also one that was deleted: what is left of it is its history. */
  describe(id: string, { deleted = false }: { readonly deleted?: boolean } = {}): Promise<ScheduleState> {
    return call(this.channel, clientMethods.describeSchedule, { run: id, deleted });
  }
}

/** One schedule. Each method rejects with `HopError` SCHEDULE_NOT_FOUND where there is none. */
export class ScheduleHandle {
  /** namespace:id */
  readonly id: string;
  private readonly client: ScheduleClient;

  constructor(client: ScheduleClient, id: string) {
    this.client = client;
    this.id = id;
  }

  /** Takes the place of everything that it was made with. */
  async update<W extends WorkflowRef>(options: ScheduleOptions<W>): Promise<void> {
    await this.client.change({ schedule: this.id, kind: "update", value: configOf(options) });
  }

  /** No instant fires until it goes on; those that pass are not made up for. */
  async pause(reason = ""): Promise<void> {
    await this.client.change({ schedule: this.id, kind: "pause", value: { reason } });
  }

  async resume(reason = ""): Promise<void> {
    await this.client.change({ schedule: this.id, kind: "resume", value: { reason } });
  }

  /** Starts a run now, as the overlap policy allows. Returns the run's instance; undefined where it was skipped. */
  async trigger(reason = ""): Promise<string | undefined> {
    const { instance, outcome } = await this.client.change({ schedule: this.id, kind: "trigger", value: { reason } });
    return outcome === skippedOutcome ? undefined : instance;
  }

  /** Starts runs for instants that have passed: `from` included, `to` not. Returns how many. */
  async backfill({ from, to, atOnce }: Backfill): Promise<number> {
    const value = { fromMs: from.getTime(), toMs: to.getTime(), atOnce };
    return (await this.client.change({ schedule: this.id, kind: "backfill", value })).count;
  }

  /** Its runs go on. */
  async delete(reason = ""): Promise<void> {
    await this.client.change({ schedule: this.id, kind: "delete", value: { reason } });
  }

  describe(): Promise<ScheduleState> {
    return this.client.describe(this.id);
  }
}

const skippedOutcome: number = InstantOutcome.skipped;
