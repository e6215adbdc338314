/**
 * What a cold query sees, as SQL: `events`, a row for each sealed event, and `runs`, a row for each
 * generation of a run. Names and meanings of the columns are a contract (docs/COLD-QUERIES.md).
 */
import { EventKind, RunStatus } from "#proto";
import { kindName } from "../history.ts";
import { statusWord } from "../status.ts";
import { sqlText } from "./event-filter.ts";

/** Name of the function over (kind, payload) that `data` is made with. */
export const decodeFunction = "hop_event_json";

/** As a segment has them; read where no segment matches. */
const segmentColumns = `partition VARCHAR, seq BIGINT, time_ms BIGINT, logical BIGINT, kind BIGINT, schema_id BIGINT, identity_issuer VARCHAR,
  identity_subject VARCHAR, identity_verified BOOLEAN, identity_cause_seq BIGINT, payload BLOB, log_index BIGINT, term BIGINT, hash BLOB,
  event BLOB, filename VARCHAR`;

const kindCases = Object.values(EventKind)
  .filter((kind) => kind !== EventKind.unspecified)
  .map((kind) => `WHEN ${kind} THEN ${sqlText(kindName(kind))}`)
  .join(" ");

/** Statements that make the views. `condition` is over the columns of a segment. */
export function viewStatements(paths: readonly string[], condition: string): string[] {
  const source = paths.length === 0 ? "hop_nothing" : `read_parquet([${paths.map(sqlText).join(", ")}], filename = true)`;
  const nothing = paths.length === 0 ? [`CREATE TABLE hop_nothing (${segmentColumns})`] : [];
  return [...nothing, eventsView(source, condition), runsView];
}

const eventsView = (source: string, condition: string) => `
  CREATE VIEW events AS SELECT
    partition,
    CASE WHEN starts_with(partition, 'run/') THEN substr(partition, 5) END AS run,
    CASE WHEN starts_with(partition, 'run/') THEN substr(partition, 5, strpos(partition, ':') - 5) END AS namespace,
    CASE WHEN starts_with(partition, 'run/') THEN substr(partition, strpos(partition, ':') + 1) END AS instance,
    seq,
    make_timestamp(time_ms * 1000) AS time,
    time_ms,
    logical,
    CASE kind ${kindCases} ELSE 'kind ' || kind END AS kind,
    kind AS kind_number,
    ${decodeFunction}(kind, payload)::JSON AS data,
    identity_issuer, identity_subject, identity_verified, identity_cause_seq,
    schema_id,
    payload,
    event,
    hash,
    substr(parse_filename(filename), 2, 10)::BIGINT AS shard,
    log_index,
    term
  FROM ${source} WHERE ${condition}`;

const {
  historyExpired,
  startQueued,
  runStarted,
  runCompleted,
  runFailed,
  runCancelled,
  runTerminated,
  runTimedOut,
  runBlocked,
  runPaused,
  runUnpaused,
  runResumed,
} = EventKind;

/** The status of a run behind an event of the kind. */
const statuses: readonly (readonly [number, number])[] = [
  [runStarted, RunStatus.running],
  [runResumed, RunStatus.running],
  [runCompleted, RunStatus.completed],
  [runFailed, RunStatus.failed],
  [runCancelled, RunStatus.cancelled],
  [runTerminated, RunStatus.terminated],
  [runTimedOut, RunStatus.timedOut],
  [runBlocked, RunStatus.blocked],
  [runPaused, RunStatus.paused],
  [runUnpaused, RunStatus.running],
];
const steps = statuses.map(([kind]) => kind).join(", ");
const ends = [runCompleted, runFailed, runCancelled, runTerminated, runTimedOut].join(", ");
const statusCases = statuses.map(([kind, status]) => `WHEN ${kind} THEN ${sqlText(statusWord(status))}`).join(" ");
const ofStart = (what: string) => `any_value(${what}) FILTER (kind_number = ${runStarted})`;

const statusNames = Object.values(RunStatus)
  .map((status) => `WHEN ${status} THEN ${sqlText(statusWord(status))}`)
  .join(" ");
const timeOf = (field: string) => `make_timestamp((ended->>'$.${field}')::BIGINT * 1000)`;

/**
 * A start that was queued begins by Core's doing: who asked for it is in the event of its ticket.
 * Of histories that expired there is what the event says that took their place.
 */
const runsView = `
  CREATE VIEW runs AS WITH
  gone AS (SELECT run, max(seq) AS through FROM events WHERE kind_number = ${historyExpired} GROUP BY run),
  queued AS (SELECT run, seq AS ticket, identity_subject AS queued_by FROM events WHERE kind_number = ${startQueued}),
  told AS (SELECT run, namespace, instance, time AS expired, unnest(json_extract(data, '$.run[*]')) AS ended FROM events WHERE kind_number = ${historyExpired})
  SELECT
    run, namespace, instance,
    ${ofStart("(data->>'$.generation')::BIGINT")} AS generation,
    ${ofStart("data->>'$.type'")} AS type,
    CASE arg_max(kind_number, seq) ${statusCases} END AS status,
    ${ofStart("time")} AS started,
    max(time) FILTER (kind_number IN (${ends})) AS closed,
    ${ofStart("data->'$.input'")} AS input,
    any_value(data->'$.result') FILTER (kind_number = ${runCompleted}) AS result,
    any_value(data->'$.failure') FILTER (kind_number = ${runFailed}) AS failure,
    ${ofStart("coalesce(queued_by, identity_subject)")} AS started_by,
    NULL::TIMESTAMP AS expired
  FROM (
    SELECT events.*, queued_by, count(*) FILTER (kind_number = ${runStarted}) OVER (PARTITION BY events.run ORDER BY seq) AS life
    FROM events LEFT JOIN gone USING (run)
      LEFT JOIN queued ON kind_number = ${runStarted} AND queued.run = events.run AND queued.ticket = (data->>'$.ticket')::BIGINT
    WHERE kind_number IN (${steps}) AND events.run IS NOT NULL AND seq > coalesce(through, -1)
  )
  GROUP BY run, namespace, instance, life
  UNION ALL SELECT
    run, namespace, instance, (ended->>'$.generation')::BIGINT, ended->>'$.type', CASE (ended->>'$.status')::BIGINT ${statusNames} END,
    ${timeOf("startedMs")}, ${timeOf("closedMs")}, NULL, NULL, NULL, NULL, expired
  FROM told`;
