import { describe, expect, test } from "bun:test";
import { parseExposition } from "./exposition-fixture.ts";
import { serveHttp } from "./http.ts";
import { createLogger, errorFields } from "./logger.ts";
import { Metrics } from "./metrics.ts";

const gauges = { activeRuns: () => 3, readyTasks: () => 2, workers: () => 1, clientSessions: () => 4 };

function used(): Metrics {
  const metrics = new Metrics();
  metrics.watch(gauges);
  metrics.appended(5);
  metrics.started();
  metrics.closed("completed");
  metrics.closed("timed_out");
  metrics.flushed(0.3);
  metrics.flushed(9000);
  metrics.answered("/hopskip.v1.WorkflowClient/GetResult", "OK", 1.5);
  metrics.answered("/hopskip.v1.WorkflowClient/GetResult", "RUN_NOT_FOUND", 0.2);
  metrics.answered('/weird"\\\n/x', "OK", 1);
  return metrics;
}

describe("the metrics page", () => {
  test("satisfies a strict reader of the exposition format", async () => {
    const families = parseExposition(await used().page());
    const value = (name: string) => families.get(name)?.samples[0]?.value;
    expect(value("hopskip_events_total")).toBe(5);
    expect(value("hopskip_active_runs")).toBe(3);
    expect(value("hopskip_client_sessions")).toBe(4);
    expect(value("hopskip_resident_memory_bytes")).toBeGreaterThan(1e6);
    expect(families.get("hopskip_runs_closed_total")?.samples.map(({ labels }) => labels.outcome)).toEqual(["completed", "timed_out"]);
    const flush = families.get("hopskip_log_flush_seconds")?.samples ?? [];
    expect(flush.find(({ name }) => name.endsWith("_count"))?.value).toBe(2);
    expect(flush.find(({ labels }) => labels.le === "5")?.value).toBe(1);
  });

  test("names keep to the house rules: prefix, snake case, a unit or _total at the end", async () => {
    for (const { name, type } of parseExposition(await used().page()).values()) {
      expect(name).toMatch(/^hopskip_[a-z]+(_[a-z]+)*$/);
      if (type === "counter") expect(name).toEndWith("_total");
      if (type === "histogram") expect(name).toEndWith("_seconds");
    }
  });

  test.each([
    ["a bad name", "# HELP a-b x\n# TYPE a-b gauge\na-b 1\n"],
    ["a counter without _total", "# HELP a x\n# TYPE a counter\na 1\n"],
    ["a sample of another family", "# HELP a x\n# TYPE a gauge\nb 1\n"],
    ["a raw quote in a label", '# HELP a x\n# TYPE a gauge\na{b="c"d"} 1\n'],
    ["a series twice", "# HELP a x\n# TYPE a gauge\na 1\na 2\n"],
    ["no line feed at the end", "# HELP a x\n# TYPE a gauge\na 1"],
    ["a histogram whose count disagrees", '# HELP a x\n# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum 1\na_count 2\n'],
    ["a value that is no number", "# HELP a x\n# TYPE a gauge\na one\n"],
  ])("the strict reader refuses %s", (_, page) => {
    expect(() => parseExposition(page)).toThrow(SyntaxError);
  });
});

test("the second port answers metrics, liveness and readiness", async () => {
  let isAlive = true;
  let reason: string | undefined = "the disk is full";
  const http = serveHttp({ hostname: "127.0.0.1", port: 0, metrics: used(), isAlive: () => isAlive, whyNotReady: () => reason });
  const get = async (path: string, init?: RequestInit) => {
    const response = await fetch(`http://${http.address}${path}`, init);
    return { status: response.status, type: response.headers.get("content-type"), body: await response.text() };
  };
  const page = await get("/metrics");
  expect(page.type).toBe("text/plain; version=0.0.4; charset=utf-8");
  expect(parseExposition(page.body).size).toBeGreaterThan(8);
  expect([(await get("/healthz")).status, (await get("/readyz")).status]).toEqual([200, 503]);
  expect((await get("/readyz")).body).toBe("the disk is full\n");
  isAlive = false;
  reason = undefined;
  expect([(await get("/healthz")).status, (await get("/readyz")).status]).toEqual([503, 200]);
  expect((await get("/etc/passwd")).status).toBe(404);
  expect((await get("/metrics", { method: "POST" })).status).toBe(405);
  await http.close();
});

describe("the logger", () => {
  const lines: string[] = [];
  const options = { write: (line: string) => void lines.push(line), nowMs: () => 1_700_000_000_000 };

  test("writes one JSON object a line and leaves out what is below its level", () => {
    lines.length = 0;
    const logger = createLogger({ ...options, form: "json", level: "info" });
    logger.debug("hidden");
    logger.warn("a\nb", { reason: 'quote " and \n', session: 3 });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toEndWith("}\n");
    expect(JSON.parse(lines[0] as string)).toEqual({
      time: "2023-11-14T22:13:20.000Z",
      level: "warn",
      message: "a\nb",
      reason: 'quote " and \n',
      session: 3,
    });
  });

  test("the form for people stays on one line and lets no control character through", () => {
    lines.length = 0;
    createLogger({ ...options, form: "pretty", isColored: false }).info("worker connected", {
      worker: "w\u001b[2J\n",
      id: "w-1",
      gone: undefined,
    });
    expect(lines).toEqual(['22:13:20.000 info  worker connected worker="w\\u001b[2J\\n" id=w-1\n']);
    createLogger({ ...options, form: "pretty", isColored: true }).error("x");
    expect(lines[1]).toBe("\u001b[31m22:13:20.000 error x\u001b[0m\n");
  });

  test("an error is told with its causes", () => {
    const fields = errorFields(new Error("outer", { cause: new TypeError("inner") }));
    expect(fields.error).toBe("Error: outer; caused by TypeError: inner");
    expect(fields.stack).toContain("inner");
  });
});
