import { type Signal, useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { RequestSummary } from '../../../agent/api/inspection/inspection-reports.ts';
import { readablePath } from '../../../agent/api/inspection/shown-requests.ts';
import type { FeedTunnel } from '../../../agent/api/page/page-routes.ts';
import type { ApiProblem } from '../../ui/api.ts';
import { Button } from '../../ui/button.tsx';
import { byteSize } from '../../ui/byte-size.ts';
import { SelectField, TextField } from '../../ui/field.tsx';
import { Badge, EmptyState, ProblemNotice, type Tone } from '../../ui/notice.tsx';
import { linkTo } from '../../ui/router.ts';
import { attempt } from '../../ui/submission.ts';
import { type RequestFilter, type TrafficModel, trafficQuery } from './traffic-model.ts';

const ANSWERED_BY = { upstream: null, gateway: 'Gateway', endpoint: 'Internal endpoint' } as const;

/** More rows are shown on demand. */
const PAGE = 100;
const TYPING_MS = 250;

/** The captured requests, newest first. */
export function RequestList({ model, tunnel }: { model: TrafficModel; tunnel: FeedTunnel }): JSX.Element {
  const shown = useSignal(PAGE);
  const busy = useSignal(false);
  const problem = useSignal<ApiProblem | null>(null);
  // Preact skips what it has rendered before: a change touches only the rows that it is about.
  const [rows] = useState(() => new WeakMap<RequestSummary, JSX.Element>());
  const row = (request: RequestSummary) => {
    const known = rows.get(request) ?? <Row key={request.id} request={request} tunnelId={tunnel.id} />;
    rows.set(request, known);
    return known;
  };
  const matching = model.matching.value;
  const more = async () => {
    problem.value = null;
    if (matching.length <= shown.value) {
      busy.value = true;
      try {
        await attempt(problem, model.loadOlder);
      } finally {
        busy.value = false;
      }
    }
    shown.value += PAGE;
  };
  const { value: filter } = model.filter;
  const isKnown = model.inspection.value !== null;
  useEffect(() => {
    if (!isKnown || trafficQuery(filter).size === 0 || model.matching.peek().length >= PAGE || !model.hasOlder.peek())
      return;
    // The agent may hold others that match; asked once somebody has stopped typing.
    const timer = window.setTimeout(() => void more(), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [filter, isKnown]);
  const report = model.inspection.value;
  if (report === null) return <p class="loading">Loading…</p>;
  if (report.requests === 0 && matching.length === 0) {
    const isOn = report.state === 'on';
    return (
      <EmptyState title={isOn ? 'Waiting for requests' : 'Nothing captured'}>
        <p>{isOn ? 'Each request appears here at once. Try it:' : 'Start inspecting, then send a request to:'}</p>
        <pre>{tunnel.url}</pre>
      </EmptyState>
    );
  }
  const hasMore = matching.length > shown.value || model.hasOlder.value;
  return (
    <>
      <h3 class="visually-hidden">Requests</h3>
      {matching.length === 0 && <p class="hint">No captured request matches the filters.</p>}
      <ol class="requests">{matching.slice(0, shown.value).map(row)}</ol>
      {problem.value && <ProblemNotice title="Older requests could not be loaded" problem={problem.value} />}
      {hasMore && (
        <Button busy={busy.value} onClick={() => void more()}>
          Show more
        </Button>
      )}
    </>
  );
}

function Row({ request, tunnelId }: { request: RequestSummary; tunnelId: string }): JSX.Element {
  const { id, method, path, started_at: started, duration_ms: ms, response_bytes: bytes, client } = request;
  const note = request.replay_of !== null ? 'Replay' : request.answered_by && ANSWERED_BY[request.answered_by];
  return (
    <li>
      <a class="request" href={linkTo('tunnels', tunnelId, 'traffic', id)}>
        <StatusBadge request={request} />
        <span class="request-target">
          <strong>{method}</strong> <span class="request-path">{readablePath(path)}</span>{' '}
          {note !== null && <em>{note}</em>}
        </span>
        <span class="request-facts">
          <time datetime={started}>{new Date(started).toLocaleTimeString('en-GB')}</time>
          <span>{tookText(ms)}</span>
          <span>{byteSize(bytes)}</span>
          <span class="request-client">{client}</span>
        </span>
      </a>
    </li>
  );
}

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
export function tookText(ms: number): string {
  if (ms < 0.05) return '< 0.1 ms';
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  return ms < 999.5 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

const STATUSES = [
  { value: 'any', label: 'Any status' },
  { value: '2xx', label: '2xx' },
  { value: '3xx', label: '3xx' },
  { value: '4xx', label: '4xx' },
  { value: '5xx', label: '5xx' },
  { value: 'none', label: 'No response' },
];
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
/** In milliseconds. */
const DURATIONS = [
  { value: '0', label: 'Any duration' },
  { value: '100', label: '100 ms or more' },
  { value: '500', label: '500 ms or more' },
  { value: '1000', label: '1 s or more' },
  { value: '5000', label: '5 s or more' },
];

/** Narrows the list by path, method, status and duration. */
export function RequestFilters({ filter }: { filter: Signal<RequestFilter> }): JSX.Element {
  const { method, path, status, minDurationMs } = filter.value;
  const change = (part: Partial<RequestFilter>) => {
    filter.value = { ...filter.value, ...part };
  };
  return (
    <fieldset class="filters">
      <legend class="visually-hidden">Filters</legend>
      <TextField
        label="Path contains"
        hiddenLabel
        placeholder="Path contains"
        type="search"
        value={path}
        onInput={(value) => change({ path: value })}
      />
      <SelectField
        label="Method"
        hiddenLabel
        value={method}
        options={withValue([{ value: '', label: 'Any method' }, ...METHODS.map(own)], method)}
        onChange={(value) => change({ method: value })}
      />
      <SelectField
        label="Status"
        hiddenLabel
        value={status}
        options={withValue(STATUSES, status)}
        onChange={(value) => change({ status: value })}
      />
      <SelectField
        label="Duration"
        hiddenLabel
        value={String(minDurationMs)}
        options={withValue(DURATIONS, String(minDurationMs))}
        onChange={(value) => change({ minDurationMs: Number(value) })}
      />
    </fieldset>
  );
}

interface FilterOption {
  value: string;
  label: string;
}

const own = (value: string): FilterOption => ({ value, label: value });

/** The address may have a value that the menu has not. */
function withValue(options: readonly FilterOption[], chosen: string): readonly FilterOption[] {
  return options.some(({ value }) => value === chosen) ? options : [...options, own(chosen)];
}
