import type { RequestReport } from '../../agent-protocol/request-report.ts';
import { maskUrl } from '../../lib/masking/mask-url.ts';

/** What the gateway has reported of a request, for people. */
export interface ShownReport {
  path: string;
  upstream_path: string | null;
  client: string;
  status: number | null;
  error_code: string | null;
  duration_ms: number;
  rules: RequestReport['rules'];
}

/** @param reveal whether to show secrets */
export function shownReport(report: RequestReport, reveal: boolean): ShownReport {
  const { target, sent, client, status, code, ms, rules } = report;
  const masked = (url: string) => (reveal ? url : maskUrl(url));
  return {
    path: masked(target),
    upstream_path: sent && masked(sent.target),
    client,
    status,
    error_code: code,
    duration_ms: ms,
    rules: rules.map((rule) => {
      const { outcome } = rule;
      return outcome.kind === 'forward' ? { ...rule, outcome: { ...outcome, url: masked(outcome.url) } } : rule;
    }),
  };
}
