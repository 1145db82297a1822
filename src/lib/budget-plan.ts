/** How many bytes a device may send and receive in a period, which begins on a day of the week or of the month. */
export interface BudgetPlan {
  bytes: number;
  period: 'day' | 'week' | 'month';
  /** 1 to 7 from Monday on, or 1 to 28; 1 for a day. */
  startDay: number;
}

const UNITS: Readonly<Record<string, number>> = { kb: 1e3, mb: 1e6, gb: 1e9 };
const PLAN = /^(\d+(?:\.\d+)?) *(kB|MB|GB)\/(day|week|month)(?:@(\d{1,2}))?$/i;
const LAST_DAY = { day: 1, week: 7, month: 28 };
/** Less does not keep a device reachable. */
const LEAST_BYTES = 1e6;
const DAY_MS = 86_400_000;
/** January 5, 1970 was a Monday. */
const MONDAY_MS = 4 * DAY_MS;

/** @throws {Error} with what is wrong */
export function parseBudgetPlan(text: string): BudgetPlan {
  const [, amount, unit = '', name = '', day = '1'] = PLAN.exec(text.trim()) ?? [];
  if (amount === undefined) throw new Error('not an amount for a period');
  const period = name.toLowerCase() as BudgetPlan['period'];
  const plan = { bytes: Number(amount) * (UNITS[unit.toLowerCase()] ?? 0), period, startDay: Number(day) };
  if (plan.bytes < LEAST_BYTES) throw new Error('less than 1 MB');
  if (plan.startDay < 1 || plan.startDay > LAST_DAY[period]) throw new Error('no such day to begin with');
  return plan;
}

/** The period that a time is in, in milliseconds of Unix time; days are those of UTC. */
export function periodOf({ period, startDay }: BudgetPlan, now: number): { start: number; end: number } {
  if (period === 'month') {
    const date = new Date(now);
    const month = date.getUTCMonth() - (date.getUTCDate() < startDay ? 1 : 0);
    const at = (months: number) => Date.UTC(date.getUTCFullYear(), month + months, startDay);
    return { start: at(0), end: at(1) };
  }
  const length = period === 'week' ? 7 * DAY_MS : DAY_MS;
  const origin = period === 'week' ? MONDAY_MS + (startDay - 1) * DAY_MS : 0;
  const start = origin + Math.floor((now - origin) / length) * length;
  return { start, end: start + length };
}
