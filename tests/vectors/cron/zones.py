#!/usr/bin/env python3
"""Writes zones.json: when cron expressions fire in 2026, in four zones, by each policy for changes of the clock.

    python3 tests/vectors/cron/zones.py > tests/vectors/cron/zones.json

By brute force over every minute of the year with zoneinfo, so that it shares nothing with what it is to check:
an instant fires where its local time matches; a local time that is left out is found by walking the local minutes.
Instants of a case are its first one and runs of [seconds since the one before, how many times].
"""
import json
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
BEGIN, END = datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2027, 1, 1, tzinfo=timezone.utc)


def field(text, low, high):
    found = set()
    for part in text.split(","):
        base, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if base == "*" else base).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def cron(text):
    minute, hour, day, month, weekday = text.split()
    days, months, weekdays = field(day, 1, 31), field(month, 1, 12), {n % 7 for n in field(weekday, 0, 7)}
    minutes, hours = field(minute, 0, 59), field(hour, 0, 23)

    def matches(t):
        if t.minute not in minutes or t.hour not in hours or t.month not in months:
            return False
        one, other = t.day in days, t.isoweekday() % 7 in weekdays
        return (one and other) if day == "*" or weekday == "*" else (one or other)

    return matches, len(hours) == 24


def exists(wall, zone):
    return wall.replace(tzinfo=zone).astimezone(timezone.utc).astimezone(zone).replace(tzinfo=None, fold=0) == wall


def comes_twice(wall, zone):
    return exists(wall, zone) and wall.replace(tzinfo=zone, fold=0).utcoffset() != wall.replace(tzinfo=zone, fold=1).utcoffset()


def table(expression, name, skipped, repeated):
    zone = ZoneInfo(name)
    matches, every_hour = cron(expression)
    fires = set()
    at = BEGIN
    while at < END:
        local = at.astimezone(zone)
        wall = local.replace(tzinfo=None, fold=0)
        if matches(wall):
            keep = every_hour or repeated == "both" or not comes_twice(wall, zone) or (local.fold == 1) == (repeated == "last")
            if keep:
                fires.add(at)
        at += MINUTE
    if skipped == "next" and not every_hour:
        for wall in left_out(name):
            if matches(wall):
                after = wall
                while not exists(after, zone):
                    after += MINUTE
                fires.add(after.replace(tzinfo=zone).astimezone(timezone.utc))
    return sorted(fires)


GAPS = {}


def left_out(name):
    if name not in GAPS:
        zone, wall = ZoneInfo(name), datetime(2026, 1, 2)
        GAPS[name] = []
        while wall < datetime(2026, 12, 31):
            if not exists(wall, zone):
                GAPS[name].append(wall)
            wall += MINUTE
    return GAPS[name]


def runs(instants):
    seconds = [int(at.timestamp()) for at in instants]
    found = []
    for before, after in zip(seconds, seconds[1:]):
        if found and found[-1][0] == after - before:
            found[-1][1] += 1
        else:
            found.append([after - before, 1])
    return {"first": instants[0].isoformat().replace("+00:00", "Z"), "count": len(seconds), "runs": found}


ZONES = {
    "Europe/Berlin": ["30 2 * * *", "0 3 * * *", "*/20 2 * * 0"],
    "America/New_York": ["30 1 * * *", "30 2 * * *", "5,35 1-3 * * *"],
    "Australia/Lord_Howe": ["15 2 * * *", "45 1 * * *", "10,40 1,2 * * 0"],
    "America/Santiago": ["0 0 * * *", "30 23 * * *", "15 0 1-7 * 0"],
}
EVERYWHERE = ["0 */2 * * *", "30 * * * *", "0 12 1,15 * 5", "0 4 29 2,4 *"]

cases = []
for name, own in ZONES.items():
    for expression in own:
        for skipped in ("next", "skip"):
            for repeated in ("first", "last", "both"):
                cases.append({"zone": name, "cron": expression, "skipped": skipped, "repeated": repeated} | runs(table(expression, name, skipped, repeated)))
    for expression in EVERYWHERE:
        cases.append({"zone": name, "cron": expression, "skipped": "next", "repeated": "first"} | runs(table(expression, name, "next", "first")))
print('{"from": "2026-01-01T00:00:00Z", "to": "2027-01-01T00:00:00Z", "cases": [')
print(",\n".join(json.dumps(case) for case in cases))
print("]}")
