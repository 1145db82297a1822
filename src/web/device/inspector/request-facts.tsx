import type { JSX } from 'preact';
import type { RequestSummary } from '../../../agent/api/inspection/inspection-reports.ts';
import { Badge, type Tone } from '../../ui/notice.tsx';

const STATES = { open: 'Open', complete: 'No status', aborted: 'Aborted', failed: 'Failed' } as const;

/** The status of the response, or why there is none. */
export function StatusBadge({ request: { status, state } }: { request: RequestSummary }): JSX.Element {
  if (state === 'failed' || state === 'aborted') {
    // Cut off by one side, as a download is; nothing has failed.
    const tone = state === 'aborted' && status !== null ? 'warning' : 'bad';
    return <Badge tone={tone}>{status === null ? STATES[state] : `${status} ${STATES[state].toLowerCase()}`}</Badge>;
  }
  if (status === null) return <Badge tone="busy">{STATES[state]}</Badge>;
  return <Badge tone={toneOf(status)}>{status}</Badge>;
}

function toneOf(status: number): Tone {
  if (status < 300) return 'good';
  if (status < 400) return 'neutral';
  return status < 500 ? 'warning' : 'bad';
}

/** A duration in milliseconds or seconds. */
export function duration(ms: number): string {
  if (ms < 0.05) return '< 0.1 ms';
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  return ms < 999.5 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
