import { type ReadonlySignal, untracked, useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { HistoryEvent, HistoryEvents } from '../../../gateway/api/dashboard/dashboard-history.ts';
import type { Device } from '../../../management/resources/device.ts';
import type { HistoryAnswer } from '../../../management/resources/history.ts';
import { ApiProblem } from '../../ui/api.ts';
import { Button } from '../../ui/button.tsx';
import { byteSize } from '../../ui/byte-size.ts';
import { Choice } from '../../ui/field.tsx';
import { EmptyState, ProblemNotice } from '../../ui/notice.tsx';
import { keepInAddress, linkTo, queryInAddress, route, useTitle } from '../../ui/router.ts';
import { attempt } from '../../ui/submission.ts';
import { paced } from '../paged-list.ts';
import { pageTitle, searchLink } from '../section.ts';
import { objectOf, titleOf } from '../sections/audit-log-section.tsx';
import { api, type News } from '../session.ts';
import {
  availabilityOf,
  clockTime,
  dayOf,
  endText,
  exactSpan,
  milliseconds,
  PERCENTILES,
  type Point,
  pointText,
  RANGES,
  type Range,
  SHOWN_ENDINGS,
  STEP_MS,
  shownPoints,
  spanText,
  stepText,
  sum,
  utcDay,
} from './history-model.ts';
import { Plots } from './plot.tsx';
import { MostFrequent } from './top-requests.tsx';
import './history.css';

const REFRESH_MS = 60_000;
const DAY_MS = 86_400_000;
const [, DAY] = RANGES as readonly [Range, Range];

/** What a history is of, as the address says it. */
type Subject = { kind: 'gateway'; key: '' } | { kind: 'endpoint' | 'device'; key: string };

function subjectInAddress(): Subject {
  const [, list, key = ''] = route.value;
  if (list === 'endpoints') return { kind: 'endpoint', key };
  return list === 'devices' ? { kind: 'device', key } : { kind: 'gateway', key: '' };
}

interface ShownTime {
  readonly range: Range;
  /** In milliseconds since 1970; null: until now. */
  readonly until: number | null;
}

/** Which time the address says. */
function timeInAddress(): ShownTime {
  const query = queryInAddress();
  const until = Date.parse(query.get('until') ?? '');
  const range = RANGES.find(({ name }) => name === query.get('range')) ?? DAY;
  return shownTime(range, Number.isNaN(until) ? null : until);
}

/** Some time in whole steps; the present one where its steps are no longer kept. */
function shownTime(range: Range, until: number | null): ShownTime {
  const step = STEP_MS[range.step];
  const end = until === null ? null : Math.ceil(until / step) * step;
  return { range, until: end === null || end >= Date.now() || !isKept(range, end) ? null : end };
}

function isKept({ ms, step, keptMs }: Range, until: number): boolean {
  return until - ms > Date.now() - keptMs - STEP_MS[step];
}

interface Loaded {
  readonly history: HistoryAnswer;
  readonly points: readonly Point[];
  readonly range: Range;
  readonly events: readonly HistoryEvent[];
  readonly hasMore: boolean;
}

async function load({ kind, key }: Subject, range: Range, until: number | null): Promise<Loaded> {
  const now = Date.now();
  const query = new URLSearchParams({ from: new Date((until ?? now) - range.ms).toISOString(), step: range.step });
  if (until !== null) query.set('to', new Date(until).toISOString());
  if (kind === 'endpoint') query.set('url', key);
  const path = kind === 'device' ? `/devices/${encodeURIComponent(key)}/history` : '/history';
  const history = await api<HistoryAnswer>('GET', `${path}?${query}`);
  const asked = new URLSearchParams({ of: kind, key, from: history.from, to: history.to });
  const { events, hasMore } = await api<HistoryEvents>('GET', `/dashboard/history-events?${asked}`);
  return { history, points: shownPoints(history, events, now), range, events, hasMore };
}

/** What has happened at an endpoint, a device or the gateway. Give it the address as `key`. */
export function HistoryView({ news }: { news: ReadonlySignal<News> }): JSX.Element {
  const [subject] = useState(subjectInAddress);
  const [firstNews] = useState(news.peek());
  const heading = useRef<HTMLHeadingElement>(null);
  const time = useSignal(timeInAddress());
  const loaded = useSignal<Loaded | null>(null);
  const problem = useSignal<ApiProblem | null>(null);
  const [loadNow] = useState(() => () => {
    const wanted = time.value;
    return attempt(problem, async () => {
      const next = await load(subject, wanted.range, wanted.until);
      // Meanwhile, another time may have been chosen.
      if (time.peek() === wanted) loaded.value = next;
    });
  });
  const [refresh] = useState(() => paced(loadNow));
  useEffect(() => heading.current?.focus(), []);
  useSignalEffect(() => {
    // A link or the browser's history may lead to another time.
    route.value;
    const { range, until } = timeInAddress();
    if (range !== time.peek().range || until !== time.peek().until) time.value = { range, until };
  });
  useSignalEffect(() => {
    void loadNow();
  });
  useSignalEffect(() => {
    if (news.value !== firstNews) void untracked(refresh);
  });
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && time.peek().until === null && refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [refresh]);
  const show = (range: Range, until: number | null) => {
    const next = shownTime(range, until);
    const query = new URLSearchParams({ range: range.name });
    if (next.until !== null) query.set('until', new Date(next.until).toISOString());
    keepInAddress(query);
    time.value = next;
  };
  const name = useNameOf(subject);
  useTitle(pageTitle(`${name} – History`));
  const { range, until } = time.value;
  const earlier = (until ?? Date.now()) - range.ms;
  const shown = loaded.value;
  if (problem.value?.code === 'ERR_GATEWAY_NO_HISTORY') {
    return (
      <section aria-labelledby="history">
        <h2 id="history">History</h2>
        <EmptyState title="This gateway keeps no history">
          <p>Set GATEWAY_HISTORY to the number of days for which it is kept, and restart the gateway.</p>
        </EmptyState>
      </section>
    );
  }
  return (
    <section class="history" aria-labelledby="history">
      <BackLink subject={subject} />
      <h2 id="history" ref={heading} tabindex={-1}>
        History of {name}
      </h2>
      <div class="history-time">
        <Choice
          label="Time"
          value={range.name}
          options={RANGES.map(({ name: value, label }) => ({ value, label }))}
          onChange={(value) => show(RANGES.find((each) => each.name === value) ?? DAY, until)}
        />
        <div class="actions">
          {isKept(range, earlier) && (
            <Button label={`Earlier: the ${range.label.toLowerCase()} before`} onClick={() => show(range, earlier)}>
              Earlier
            </Button>
          )}
          {until !== null && (
            <>
              <Button
                label={`Later: the ${range.label.toLowerCase()} after`}
                onClick={() => show(range, until + range.ms)}
              >
                Later
              </Button>
              <Button onClick={() => show(range, null)}>Now</Button>
            </>
          )}
        </div>
      </div>
      {problem.value && <ProblemNotice title="The history could not be loaded" problem={problem.value} />}
      {!shown && !problem.value && <p class="with-spinner">Loading…</p>}
      {shown && (
        <>
          <Summary subject={subject} loaded={shown} />
          <PlotCard key={shown.range.name} loaded={shown} isGateway={subject.kind === 'gateway'} show={show} />
          <Figures loaded={shown} />
          {subject.kind === 'endpoint' && <MostFrequent url={subject.key} />}
          <EventList loaded={shown} />
        </>
      )}
    </section>
  );
}

/** What people call it. */
function useNameOf({ kind, key }: Subject): string {
  const name = useSignal(kind === 'gateway' ? 'the gateway' : key);
  useEffect(() => {
    if (kind !== 'device') return;
    api<Device>('GET', `/devices/${encodeURIComponent(key)}`).then(
      (device) => {
        name.value = device.name;
      },
      (error: unknown) => {
        // Its history says that it does not exist.
        if (!(error instanceof ApiProblem)) throw error;
      },
    );
  }, []);
  return name.value;
}

function BackLink({ subject: { kind, key } }: { subject: Subject }): JSX.Element {
  if (kind === 'device')
    return (
      <a class="back" href={linkTo('devices', key)}>
        Device
      </a>
    );
  if (kind === 'endpoint')
    return (
      <a class="back" href={searchLink('endpoints', key)}>
        Endpoints
      </a>
    );
  return (
    <a class="back" href="#/">
      Overview
    </a>
  );
}

/** Whether it was up, first. */
function Summary({ subject, loaded: { history, points } }: { subject: Subject; loaded: Loaded }): JSX.Element {
  const isGateway = subject.kind === 'gateway';
  const { share, sentence, outage, unknown } = availabilityOf(history, points, isGateway);
  const requests = sum(points.map((point) => point.requests));
  const errors = sum(points.map(({ endings }) => endings.server_errors + endings.failed));
  const figures: [label: string, value: string][] = [
    [isGateway ? 'Running' : 'Online', share],
    ['Requests', requests.toLocaleString('en')],
    ['Errors', errors.toLocaleString('en')],
    ['To clients', byteSize(sum(points.map(({ sent }) => sent)))],
    ['From clients', byteSize(sum(points.map(({ received }) => received)))],
  ];
  if (!isGateway) figures.push(['Reconnects', sum(points.map(({ reconnects }) => reconnects)).toLocaleString('en')]);
  const away = sum(points.map((point) => point.away));
  const last = points.at(-1);
  return (
    <>
      <div class="availability">
        <p class="lead">{sentence}</p>
        {outage !== null && <p>Longest outage: {outage}.</p>}
        {unknown !== null && (
          <p>
            Of {unknown}, nothing is known: no gateway ran{!isGateway && ', or it had not come online yet'}.
          </p>
        )}
        {away > 0 && (
          <p>For {exactSpan(away)} without a session, the device ran: its connection was down, or the gateway.</p>
        )}
        <p class="hint">
          {history.step === 'day'
            ? `${utcDay(Date.parse(history.from))} to ${utcDay(last?.at ?? 0)}. Days are those of UTC.`
            : `${spanText(Date.parse(history.from), Date.parse(history.to))}, by the clock of this browser.`}
        </p>
      </div>
      <dl class="card figures">
        {figures.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

interface PlotCardProps {
  loaded: Loaded;
  isGateway: boolean;
  show: (range: Range, until: number) => void;
}

/** The plots, and what the chosen point says. */
function PlotCard({ loaded: { points, range }, isGateway, show }: PlotCardProps): JSX.Element {
  const chosen = useSignal<number | null>(null);
  const choose = (at: number) => {
    chosen.value = at;
  };
  return (
    <div class="card plot-card">
      <Plots points={points} range={range} chosen={chosen.value} isGateway={isGateway} onChoose={choose} />
      <Chosen point={chosen.value === null ? undefined : points[chosen.value]} show={show} />
    </div>
  );
}

/** What the chosen point says; screen readers read it when another one is chosen. */
function Chosen({
  point,
  show,
}: {
  point: Point | undefined;
  show: (range: Range, until: number) => void;
}): JSX.Element {
  const isDay = point !== undefined && point.until - point.at === DAY_MS && isKept(DAY, point.until);
  return (
    <div class="chosen">
      <p role="status">{point && pointText(point, eventText)}</p>
      {isDay && <Button onClick={() => show(DAY, point.until)}>Show this day by the hour</Button>}
      <p id="chosen-hint" class="hint" hidden={point !== undefined}>
        Point at the plots, or move the slider below them with the arrow keys.
      </p>
    </div>
  );
}

/** The same numbers as a table, which screen readers always have. */
function Figures({ loaded: { points } }: { loaded: Loaded }): JSX.Element {
  const isShown = useSignal(false);
  return (
    <section class="part" aria-labelledby="numbers">
      <div class="section-head">
        <h3 id="numbers">Numbers</h3>
        <Button
          onClick={() => {
            isShown.value = !isShown.value;
          }}
        >
          {isShown.value ? 'Hide the table' : 'Show as a table'}
        </Button>
      </div>
      <div class={isShown.value ? 'card numbers' : 'visually-hidden'} {...(isShown.value && SCROLLS)}>
        <table aria-labelledby="numbers">
          <thead>
            <tr>
              {COLUMNS.map(({ head }) => (
                <th key={head} scope="col">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {points.toReversed().map((point) => (
              <tr key={point.at}>
                {COLUMNS.map(({ head, cell }, place) =>
                  place === 0 ? (
                    <th key={head} scope="row">
                      {cell(point)}
                    </th>
                  ) : (
                    <td key={head}>{isUnknown(point) && place > STATES ? '–' : cell(point)}</td>
                  ),
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const SCROLLS = { role: 'region', 'aria-labelledby': 'numbers', tabindex: 0 } as const;
const isUnknown = ({ online, offline }: Point) => online + offline === 0;
const number = (value: number) => value.toLocaleString('en');
/** Columns that say what is known. */
const STATES = 4;
const COLUMNS: readonly { head: string; cell: (point: Point) => string }[] = [
  { head: 'Time', cell: stepText },
  { head: 'Online', cell: ({ online }) => exactSpan(online) },
  { head: 'Offline', cell: ({ offline }) => exactSpan(offline) },
  { head: 'Without connection', cell: ({ away }) => exactSpan(away) },
  { head: 'Not known', cell: ({ unknown }) => exactSpan(unknown) },
  { head: 'Requests', cell: ({ requests }) => number(requests) },
  ...SHOWN_ENDINGS.map(({ name, label }) => ({ head: label, cell: ({ endings }: Point) => number(endings[name]) })),
  {
    head: 'Refused by',
    cell: ({ refusedBy }) =>
      Object.entries(refusedBy)
        .map(([action, times]) => `${action} ${number(times)}`)
        .join(', ') || '–',
  },
  ...PERCENTILES.map((name) => ({
    head: name,
    cell: ({ latency }: Point) => (latency === null ? '–' : milliseconds(latency[name])),
  })),
  { head: 'To clients', cell: ({ sent }) => byteSize(sent) },
  { head: 'From clients', cell: ({ received }) => byteSize(received) },
  { head: 'Reconnects', cell: ({ reconnects }) => number(reconnects) },
  {
    head: 'Sessions ended',
    cell: ({ ends }) =>
      Object.entries(ends)
        .map(([end, times]) => `${number(times)} ${endText(end)}`)
        .join(', ') || '–',
  },
];

/** What has happened, in words. */
function eventText(event: HistoryEvent): string {
  const { title, after } = event;
  if (title !== undefined) return `${title}: ${objectOf(event)}`;
  if (event.type === 'agent_command_created.v0')
    return `Agent told to ${after?.command}: ${after?.device ?? event.object_id}`;
  return `${titleOf(event)}: ${objectOf(event)}`;
}

function EventList({ loaded: { events, hasMore } }: { loaded: Loaded }): JSX.Element {
  return (
    <section class="part" aria-labelledby="events">
      <h3 id="events">Events</h3>
      {events.length === 0 && <p class="hint">Nobody has changed anything in this time.</p>}
      {hasMore && (
        <p class="hint">
          These are the latest {events.length}. <a href={linkTo('audit-log')}>The audit log</a> has all changes.
        </p>
      )}
      {events.length > 0 && (
        <ul class="card events">
          {events.map((event) => (
            <li key={event.id ?? `${event.created_at} ${event.type} ${event.object_id}`}>
              <time datetime={event.created_at}>
                {dayOf(Date.parse(event.created_at))}, {clockTime(Date.parse(event.created_at))}
              </time>
              <span>
                {event.id === null ? eventText(event) : <a href={linkTo('audit-log', event.id)}>{eventText(event)}</a>}
                {event.by !== null && <span class="below">by {event.by_description ?? event.by}</span>}
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
