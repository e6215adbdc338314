#!/bin/sh
# What a cluster needs and costs, from what it is to do. docs/SIZING.md says where each number comes from.
#   sh deploy/sizing.sh runs_per_day=2000000 steps=5 put_price=0.0054 …
# Every value of the first two blocks below can be given as NAME=VALUE. Needs awk, and nothing of Hopskip.
set -eu
for given in "$@"; do
  case $given in
    [a-z]*=[0-9]*) ;;
    *) echo "sizing.sh: want NAME=NUMBER, such as runs_per_day=1000000, not $given" >&2; exit 2 ;;
  esac
done
exec awk -v given="$*" '
function set_given(  parts, n, i, at, name) {
  n = split(given, parts, " ")
  for (i = 1; i <= n; i++) {
    at = index(parts[i], "=")
    name = substr(parts[i], 1, at - 1)
    if (!(name in v)) { print "sizing.sh: there is no value " name | "cat >&2"; close("cat >&2"); exit_code = 2; exit 2 }
    v[name] = substr(parts[i], at + 1) + 0
  }
}
function max(a, b) { return a > b ? a : b }
function line(what, value, unit) { printf "%-46s %12s %s\n", what, value, unit }
function num(x, digits) { return sprintf("%." digits "f", x) }
BEGIN {
  # What is to be done.
  v["runs_per_day"] = 1000000      # runs started a day
  v["steps"] = 3                   # activities of a run
  v["payload"] = 100               # bytes of an argument or a result
  v["peak"] = 5                    # busiest second over the average
  v["open_runs"] = 100000          # runs that wait at one time
  v["kept_days"] = 30              # days of history and of ended runs that are looked at
  v["nodes"] = 3
  v["replicas"] = 3
  v["shards"] = 3
  v["seal_minutes"] = 5            # --seal-age
  v["keep_mib"] = 256              # --keep-size
  v["log_mib"] = 64                # --seal-size
  # Prices in one currency: an example set, see docs/SIZING.md.
  v["put_price"] = 0.005           # 1,000 PUT or LIST
  v["get_price"] = 0.0004          # 1,000 GET
  v["object_price"] = 0.023        # GB-month of object storage
  v["disk_price"] = 0.08           # GB-month of a disk
  v["zone_price"] = 0.02           # GB between zones, both ends
  set_given()

  # Measured at payloads of 100 bytes only; the shares of a payload, and busy_share, are assumptions.
  log_own = 210                    # bytes of an event in the log, beside its payload
  sealed_own = 40                  # bytes of an event in segment and index, beside its payload
  sealed_share = 0.4               # of a payload in a segment: it is there twice, and compressed
  copied_own = 35                  # of an event in objects "records"
  copied_share = 0.4
  state_run = 636; list_run = 569  # bytes of a run on a node: state, and index of runs
  entry_manifest = 1060            # bytes of a manifest for each segment that it names
  leader_ms = 0.6; follower_ms = 0.5; alone_ms = 0.2; records_measured = 3   # CPU of a run with 1 step
  busy_share = 0.6                 # of a core: above it waiting times grow
  written_share = 4.1              # bytes written to disk for one of the log
  idle_mib = 68; open_kb = 0.8; memory_runs = 4000; memory_run_kb = 29

  followers = v["replicas"] - 1
  events_run = 2 + 2 * v["steps"]
  records_run = 1 + 2 * v["steps"]
  runs_s = v["runs_per_day"] / 86400
  peak_runs = runs_s * v["peak"]
  log_event = log_own + v["payload"]
  log_run = events_run * log_event
  log_day = v["runs_per_day"] * log_run

  cpu_run = (followers > 0 ? leader_ms + followers * follower_ms : alone_ms) * records_run / records_measured
  node_rate = busy_share * 1000 / cpu_run * v["nodes"]

  segment_run = events_run * (sealed_own + sealed_share * v["payload"])
  copied_run = events_run * (copied_own + copied_share * v["payload"])

  seals_day = v["shards"] * max(1440 / v["seal_minutes"], log_day / v["shards"] / (v["log_mib"] * 1048576))
  seals_kept = seals_day * v["kept_days"] / v["shards"]
  log_mib_day = log_day / 1048576
  puts_month = 30 * (seals_day * 3 + max(seals_day, log_mib_day))
  gets_month = 30 * (seals_day * 4 + max(seals_day, log_mib_day))
  manifest = entry_manifest * seals_kept
  manifests_kept = v["shards"] * entry_manifest * seals_kept * (seals_kept + 1) / 2

  per_node = v["replicas"] / v["nodes"]
  hot_log = v["shards"] * (v["keep_mib"] + v["log_mib"]) * 1048576
  runs_known = v["open_runs"] + v["runs_per_day"] * v["kept_days"]
  disk = per_node * (hot_log + runs_known * (state_run + list_run))
  memory = idle_mib + per_node * v["open_runs"] * open_kb / 1024 + memory_runs * memory_run_kb / 1024

  between = log_run * followers
  million_puts = 1e6 / v["runs_per_day"] * puts_month / 30
  million_gets = 1e6 / v["runs_per_day"] * gets_month / 30
  # Each upload of a checkpoint waits until the records behind the one before are as large as that one was.
  stored_run = segment_run + 2 * copied_run
  history = v["kept_days"] * v["runs_per_day"] * stored_run

  print "Rates"
  line("  runs/s, average and peak", num(runs_s, 1) " " num(peak_runs, 1), "")
  line("  events/s at the peak", num(peak_runs * events_run, 0), "")
  line("  CPU of a run on all nodes together", num(cpu_run, 2), "ms")
  line("  runs/s that the nodes are good for", num(node_rate, 0), peak_runs > node_rate ? "TOO FEW: more nodes and shards" : "")
  if (v["shards"] < v["nodes"]) line("  shards", v["shards"], "FEWER THAN NODES: some lead nothing")
  print "Each node"
  line("  log written at the peak", num(peak_runs * log_run * per_node / 1e6, 2), "MB/s")
  line("  written to disk at the peak, all of it", num(peak_runs * log_run * per_node * written_share / 1e6, 2), "MB/s")
  line("  disk: log that is kept", num(per_node * hot_log / 1e9, 1), "GB")
  line("  disk: runs that are known", num(per_node * runs_known * (state_run + list_run) / 1e9, 1), "GB")
  line("  disk to provide (half of it free)", num(disk * 2 / 1e9, 0), "GB")
  line("  memory to provide (twice what is measured)", num(memory * 2 / 1024, 1), "GiB")
  print "Between nodes"
  line("  at the peak, all nodes together", num(peak_runs * between * 8 / 1e6, 1), "Mbit/s")
  print "Object storage"
  line("  sealed: bytes a run", num(segment_run, 0), "B")
  line("  checkpoints and records: bytes a run, at most", num(2 * copied_run, 0), "B")
  line("  seals a day", num(seals_day, 0), "")
  line("  PUT, GET and HEAD a month", num(puts_month, 0) " " num(gets_month, 0), "")
  line("  size of a manifest at the end", num(manifest / 1e6, 1), manifest > 10e6 ? "MB: LARGE, seal less often or have fewer shards" : "MB")
  line("  history at the end", num(history / 1e9, 0), "GB")
  line("  manifests at the end", num(manifests_kept / 1e9, 1), "GB")
  print "Price of a million runs"
  line("  requests", num(million_puts / 1000 * v["put_price"] + million_gets / 1000 * v["get_price"], 4), "")
  line("  a month of their history", num(stored_run / 1000 * v["object_price"], 4), "")
  line("  a month of their states on disks", num((state_run + list_run) * v["replicas"] / 1000 * v["disk_price"], 4), "")
  line("  between zones", num(between / 1000 * v["zone_price"], 4), "")
}
END { exit exit_code }
'
