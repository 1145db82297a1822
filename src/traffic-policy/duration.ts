import { z } from 'zod';

const UNITS = new Map([
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
]);

/** @returns the milliseconds of a duration such as `90s`, `10m` or `1h30m`; null for any other text */
function parseDuration(text: string): number | null {
  if (!/^(?:\d{1,9}(?:\.\d{1,3})?(?:h|ms|m|s))+$/.test(text)) return null;
  let total = 0;
  for (const [, number, unit] of text.matchAll(/([\d.]+)(h|ms|m|s)/g))
    total += Number(number) * (UNITS.get(unit ?? '') ?? 0);
  return total;
}

/** A duration in a configuration, converted to milliseconds. */
export function durationBetween(minMs: number, maxMs: number) {
  return z.string().transform((text, context) => {
    const ms = parseDuration(text);
    if (ms !== null && ms >= minMs && ms <= maxMs) return ms;
    const [code, message] =
      ms === null
        ? ['ERR_NGROK_2228', 'must be a duration such as 90s, 10m or 1h']
        : ['ERR_NGROK_2225', `must be between ${minMs / 1000} s and ${maxMs / 1000} s`];
    context.addIssue({ code: 'custom', message, params: { ngrok: code } });
    return z.NEVER;
  });
}
