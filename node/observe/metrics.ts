/**
 * What a node counts, in the Prometheus exposition format.
 *
 * Names are `hopskip_<what>_<unit>`, counters end in `_total`, times are seconds. Labels have few
 * values, all of them the node's own: never a run, a workflow type or anything a client chose.
 */
import { Counter, Gauge, Histogram, Registry } from "prom-client";

/** Current values, read when the page is made. */
export interface Gauges {
  activeRuns(): number;
  readyTasks(): number;
  workers(): number;
  clientSessions(): number;
}

/** Of content-addressed storage. */
export interface BlobGauges {
  count(): number;
  bytes(): number;
  waiting(): number;
  uploaded(): number;
  collected(): number;
}

const latencyBuckets = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];

export class Metrics {
  private readonly registry = new Registry();
  private readonly events: Counter;
  private readonly starts: Counter;
  private readonly differences: Counter;
  private readonly completions: Counter<"outcome">;
  private readonly requests: Counter<"method" | "result">;
  private readonly requestSeconds: Histogram<"method">;
  private readonly flushSeconds: Histogram;

  constructor() {
    const registers = [this.registry];
    const latency = { registers, buckets: latencyBuckets };
    this.events = new Counter({ name: "hopskip_events_total", help: "Events appended to histories", registers });
    this.starts = new Counter({ name: "hopskip_runs_started_total", help: "Runs started", registers });
    this.differences = new Counter({
      name: "hopskip_replica_differences_total",
      help: "Times that replicas of a shard were found to differ; anything above 0 is a bug or a broken disk",
      registers,
    });
    this.completions = new Counter({
      name: "hopskip_runs_closed_total",
      help: "Runs that ended, by how",
      labelNames: ["outcome"],
      registers,
    });
    this.requests = new Counter({ name: "hopskip_requests_total", help: "Calls answered", labelNames: ["method", "result"], registers });
    this.requestSeconds = new Histogram({ name: "hopskip_request_seconds", help: "Duration of calls", labelNames: ["method"], ...latency });
    this.flushSeconds = new Histogram({ name: "hopskip_log_flush_seconds", help: "Duration of group commits", ...latency });
    this.gauge("hopskip_resident_memory_bytes", "Resident memory of the process", () => process.memoryUsage.rss());
    this.gauge("hopskip_uptime_seconds", "Age of the process", () => process.uptime());
  }

  /** Publishes current values; they are read at each scrape. */
  watch(gauges: Gauges): void {
    this.gauge("hopskip_active_runs", "Runs in memory", () => gauges.activeRuns());
    this.gauge("hopskip_ready_tasks", "Tasks that wait for a worker", () => gauges.readyTasks());
    this.gauge("hopskip_worker_sessions", "Connected workers", () => gauges.workers());
    this.gauge("hopskip_client_sessions", "Open client sessions", () => gauges.clientSessions());
  }

  watchBlobs(gauges: BlobGauges): void {
    this.gauge("hopskip_blobs", "Blobs on this node's disk", () => gauges.count());
    this.gauge("hopskip_blob_bytes", "Their bytes", () => gauges.bytes());
    this.gauge("hopskip_blobs_waiting", "Blobs that this node is uploading, or is to upload next", () => gauges.waiting());
    this.gauge("hopskip_blobs_uploaded", "Blobs that this process has uploaded to object storage", () => gauges.uploaded());
    this.gauge("hopskip_blobs_collected", "Blobs that nothing named, and that this process has removed from the disk", () =>
      gauges.collected(),
    );
  }

  appended(count: number): void {
    this.events.inc(count);
  }

  started(): void {
    this.starts.inc();
  }

  replicasDiffer(): void {
    this.differences.inc();
  }

  /** `outcome`: "completed", "failed", "cancelled", "terminated" or "timed_out". */
  closed(outcome: string): void {
    this.completions.inc({ outcome });
  }

  flushed(ms: number): void {
    this.flushSeconds.observe(ms / 1000);
  }

  answered(method: string, result: string, ms: number): void {
    this.requests.inc({ method, result });
    this.requestSeconds.observe({ method }, ms / 1000);
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  page(): Promise<string> {
    return this.registry.metrics();
  }

  private gauge(name: string, help: string, read: () => number): void {
    const registers = [this.registry];
    new Gauge({
      name,
      help,
      registers,
      collect(this: Gauge) {
        this.set(read());
      },
    });
  }
}
