import type { Exchange } from './exchange.ts';
import { durationOf } from './shown-exchange.ts';

/** Which exchanges to show; what is omitted does not matter. */
export interface ExchangeFilter {
  method?: string | undefined;
  /** Contained in path and query, in any case. */
  path?: string | undefined;
  /** `404`, `5xx`, or `none` without a response. */
  status?: string | undefined;
  min_duration_ms?: number | undefined;
  /** Only older ones than this. */
  before?: number | undefined;
}

/** What {@link ExchangeFilter.status} may be. */
export const STATUS_FILTER = /^(?:[1-5](?:xx|\d\d)|none)$/i;

/** Makes a predicate of a filter. */
export function matcherOf({ method, path, status, min_duration_ms, before }: ExchangeFilter) {
  const part = path?.toLowerCase();
  const wantedMethod = method?.toUpperCase();
  const digits = status?.toLowerCase().replace(/x+$/, '');
  return (exchange: Exchange): boolean => {
    const { line } = exchange.request;
    if (before !== undefined && exchange.id >= before) return false;
    if (wantedMethod !== undefined && line.method.toUpperCase() !== wantedMethod) return false;
    if (part !== undefined && !line.target.toLowerCase().includes(part)) return false;
    if (digits !== undefined) {
      const answered = exchange.response?.line.status;
      if (digits === 'none' ? answered !== undefined : !String(answered ?? '').startsWith(digits)) return false;
    }
    return min_duration_ms === undefined || durationOf(exchange) >= min_duration_ms;
  };
}
