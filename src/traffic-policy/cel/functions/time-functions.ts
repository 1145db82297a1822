import { type CelFunc, CelScalar, celFunc, celMethod, objectType } from '@bufbuild/cel';
import { create } from '@bufbuild/protobuf';
import { TimestampSchema, timestampMs } from '@bufbuild/protobuf/wkt';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import { currentContext } from '../evaluation.ts';

const { INT, STRING } = CelScalar;
const TIMESTAMP = objectType(TimestampSchema);

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

/**
 * Reads a part of a date that was shifted so that its UTC parts are those of the zone. The library uses the time zone of
 * the process, and is an hour off when that zone's clocks go forward.
 */
const PARTS: Readonly<Record<string, (moment: Date) => number>> = {
  getFullYear: (moment) => moment.getUTCFullYear(),
  getMonth: (moment) => moment.getUTCMonth(),
  getDate: (moment) => moment.getUTCDate(),
  getDayOfMonth: (moment) => moment.getUTCDate() - 1,
  getDayOfWeek: (moment) => moment.getUTCDay(),
  getDayOfYear: (moment) => (moment.getTime() - new Date(moment).setUTCMonth(0, 1)) / DAY,
  getHours: (moment) => moment.getUTCHours(),
  getMinutes: (moment) => moment.getUTCMinutes(),
  getSeconds: (moment) => moment.getUTCSeconds(),
  getMilliseconds: (moment) => moment.getUTCMilliseconds(),
};

const PART_FUNCTIONS: readonly CelFunc[] = Object.entries(PARTS).flatMap(([name, part]) => [
  celMethod(name, TIMESTAMP, [], INT, function () {
    return BigInt(part(new Date(timestampMs(this.message))));
  }),
  celMethod(name, TIMESTAMP, [STRING], INT, function (zone) {
    return BigInt(part(shifted(timestampMs(this.message), zone)));
  }),
]);

/** The years 1 to 9999, in seconds since 1970. */
const [FIRST, LAST] = [-62_135_596_800n, 253_402_300_799n];

export const TIME_FUNCTIONS: readonly CelFunc[] = [
  ...PART_FUNCTIONS,
  // The library takes milliseconds.
  celFunc('timestamp', [INT], TIMESTAMP, (seconds) => {
    if (seconds < FIRST || seconds > LAST) throw new Error('timestamp: out of range');
    return create(TimestampSchema, { seconds });
  }),
];

function shifted(ms: number, zone: string): Date {
  const fixed = /^([+-]?)(\d\d):(\d\d)$/.exec(zone);
  if (!fixed) return new Date(wallTime(ms, zone) + (((ms % 1000) + 1000) % 1000));
  const offset = (Number(fixed[2]) * 60 + Number(fixed[3])) * MINUTE;
  return new Date(ms + (fixed[1] === '-' ? -offset : offset));
}

const CACHED = 100;
/** The cost of a format that is not cached, and of using one, in units of the budget. */
const FORMAT_COST = 5000;
const USE_COST = 150;
const formats = new BoundedMap<string, Intl.DateTimeFormat>(CACHED);

/** The zone's wall clock as if it were UTC, in whole seconds. */
function wallTime(ms: number, zone: string): number {
  currentContext().budget.spend(USE_COST);
  let format = formats.get(zone);
  if (!format) {
    const numeric = {
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    } as const;
    currentContext().budget.spend(FORMAT_COST);
    // Throws for an unknown zone.
    format = new Intl.DateTimeFormat('en-US', { ...numeric, hourCycle: 'h23', timeZone: zone });
    formats.set(zone, format);
  }
  const parts = new Map(format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]));
  const part = (type: Intl.DateTimeFormatPartTypes) => parts.get(type) ?? 0;
  const time = new Date(0);
  // Date.UTC takes the years 1 to 99 for those of the 20th century.
  time.setUTCFullYear(part('year'), part('month') - 1, part('day'));
  return time.setUTCHours(part('hour'), part('minute'), part('second'));
}
