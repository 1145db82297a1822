import { matcherOf, STATUS_FILTER } from '../../../agent/api/inspection/exchange-filter.ts';
import type { RequestSummary } from '../../../agent/api/inspection/inspection-reports.ts';

export interface RequestFilter {
  /** Empty: any. */
  readonly method: string;
  /** Contained in path and query, in any case. */
  readonly path: string;
  /** `404`, `5xx`, `none` without a response, or `any`. */
  readonly status: string;
  readonly minDurationMs: number;
}

/** Whether the filter shows a request, by the rules of the agent's API. */
export function matches({ method, path, status, minDurationMs }: RequestFilter): (request: RequestSummary) => boolean {
  const match = matcherOf({
    method: method || undefined,
    path,
    status: status === 'any' ? undefined : status,
    min_duration_ms: minDurationMs,
  });
  return (request) => match({ ...request, durationMs: request.duration_ms });
}

/** The filter as the API's query, which is the one in the page's address, too. */
export function queryOf({ method, path, status, minDurationMs }: RequestFilter): URLSearchParams {
  return new URLSearchParams({
    ...(method !== '' && { method }),
    ...(path !== '' && { path }),
    ...(status !== 'any' && { status }),
    ...(minDurationMs > 0 && { min_duration_ms: String(minDurationMs) }),
  });
}

/** The filter of a query; what is not valid is left out. */
export function filterOf(query: URLSearchParams): RequestFilter {
  const status = query.get('status') ?? '';
  const duration = Number(query.get('min_duration_ms'));
  return {
    method: query.get('method') ?? '',
    path: query.get('path') ?? '',
    status: STATUS_FILTER.test(status) ? status : 'any',
    minDurationMs: duration > 0 ? duration : 0,
  };
}
