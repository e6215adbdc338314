/** Time zones as this machine knows them, from the data that its JavaScript engine brings along. */
import type { ZoneReader } from "#core/base";

/** Names are whatever callers write; there are some six hundred zones. */
const zonesMax = 1000;
const nameCharsMax = 64;
/** Offsets that a zone keeps: a search for the next instant asks for the same days again and again. */
const keptMax = 20_000;

class IntlZones implements ZoneReader {
  private readonly formats = new Map<string, Intl.DateTimeFormat>();
  private readonly offsets = new Map<string, Map<number, number>>();

  offsetMs(zone: string, atMs: number): number | undefined {
    const format = this.formatOf(zone);
    if (format === undefined) return undefined;
    let known = this.offsets.get(zone);
    if (known === undefined || known.size >= keptMax) {
      known = new Map();
      this.offsets.set(zone, known);
    }
    const at = Math.floor(atMs / 1000) * 1000;
    const found = known.get(at) ?? localMs(format, at) - at;
    known.set(at, found);
    return found;
  }

  private formatOf(zone: string): Intl.DateTimeFormat | undefined {
    const known = this.formats.get(zone);
    const format = known ?? open(zone);
    if (known !== undefined || format === undefined) return format;
    if (this.formats.size >= zonesMax) {
      this.formats.clear();
      this.offsets.clear();
    }
    this.formats.set(zone, format);
    return format;
  }
}

/** One for the process: all share what it knows of zones. */
export const zones: ZoneReader = new IntlZones();

/** Undefined where there is no such zone. An offset such as +02:00 is no zone: it never changes its clocks. */
function open(zone: string): Intl.DateTimeFormat | undefined {
  if (zone.length > nameCharsMax || !/^[A-Za-z]/.test(zone)) return undefined;
  try {
    return new Intl.DateTimeFormat("en-US", {
      timeZone: zone,
      calendar: "gregory",
      numberingSystem: "latn",
      hourCycle: "h23",
      year: "numeric",
      month: "numeric",
      day: "numeric",
      hour: "numeric",
      minute: "numeric",
      second: "numeric",
    });
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** What a clock of the zone shows, as if it were UTC. */
function localMs(format: Intl.DateTimeFormat, atMs: number): number {
  const parts: Partial<Record<Intl.DateTimeFormatPartTypes, number>> = {};
  for (const { type, value } of format.formatToParts(atMs)) parts[type] = Number(value);
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
  return Date.UTC(year, month - 1, day, hour, minute, second);
}
