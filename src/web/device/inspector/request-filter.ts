import type { RequestSummary } from '../../../agent/api/inspection/inspection-reports.ts';

export type StatusFilter = 'any' | '2xx' | '3xx' | '4xx' | '5xx' | 'none';

export interface RequestFilter {
  /** Contained in path and query, in any case. */
  readonly path: string;
  readonly status: StatusFilter;
  readonly minDurationMs: number;
}

export const NO_FILTER: RequestFilter = { path: '', status: 'any', minDurationMs: 0 };

/** Whether the filter shows a request, by the rules of the agent's API. */
export function matches({ path, status, minDurationMs }: RequestFilter, request: RequestSummary): boolean {
  const { status: found } = request;
  return (
    (status === 'any' || status === (found === null ? 'none' : `${Math.floor(found / 100)}xx`)) &&
    request.duration_ms >= minDurationMs &&
    request.path.toLowerCase().includes(path.toLowerCase())
  );
}

/** The filter as the API's query. */
export function queryOf({ path, status, minDurationMs }: RequestFilter): URLSearchParams {
  return new URLSearchParams({
    ...(path !== '' && { path }),
    ...(status !== 'any' && { status }),
    ...(minDurationMs > 0 && { min_duration_ms: String(minDurationMs) }),
  });
}
