import { effect, useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { FeedTunnel } from '../../../agent/api/page/page-routes.ts';
import { Button, ButtonLink } from '../../ui/button.tsx';
import { BackIcon } from '../../ui/icons.tsx';
import { keepInAddress, queryInAddress, route } from '../../ui/router.ts';
import { RequestDialog } from './request-dialog.tsx';
import { RequestFilters, RequestList } from './request-list.tsx';
import { filterOf, openTraffic, type TrafficModel, trafficQuery } from './traffic-model.ts';
import './inspector.css';
import type { InspectionReport } from '../../../agent/api/inspection/inspection-reports.ts';
import { besidePage, call } from '../../ui/api.ts';
import { byteSize } from '../../ui/byte-size.ts';
import { SelectField, setter } from '../../ui/field.tsx';
import { Badge, ProblemNotice } from '../../ui/notice.tsx';
import { useSubmission } from '../../ui/submission.ts';
import { present, span } from '../../ui/time-span.ts';

export interface InspectorProps {
  tunnel: FeedTunnel;
  /** File with the CA of an embedded gateway; null: the gateway is elsewhere. */
  ca: string | null;
  /** The request that is shown, if any. */
  requestId: string | undefined;
  /** Whether it is edited, to be sent again. */
  isEditing: boolean;
}

/** The requests of a tunnel: lists them as they come, and shows each in detail. */
export function InspectorView({ tunnel, ca, requestId, isEditing }: InspectorProps): JSX.Element {
  const [model] = useState(() => openTraffic(tunnel.url, ca));
  /** The query of the filter that is shown. */
  const shown = useRef(trafficQuery(model.filter.peek()).toString());
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    // The link that led here has left the page, and the focus with it.
    if (requestId === undefined) heading.current?.focus();
    return () => model.connection.close();
  }, [model]);
  // At once, not with the next paint: a reload in between would lose the filter.
  const keepFilter = () => {
    // A link to another view of the tunnel has no query; a link from elsewhere, and the history, may have another one.
    route.value;
    const given = queryInAddress();
    const { value } = model.filter;
    if (given.size > 0 && given.toString() !== shown.current) model.filter.value = filterOf(given);
    else keepInAddress(trafficQuery(value));
    shown.current = trafficQuery(model.filter.peek()).toString();
  };
  useEffect(() => effect(keepFilter), [model]);
  const report = model.inspection.value;
  return (
    <section aria-labelledby="traffic" class="inspector">
      <div class="inspector-head">
        <ButtonLink kind="quiet" href="#/">
          <BackIcon />
          All tunnels
        </ButtonLink>
        <h2 id="traffic" ref={heading} tabindex={-1}>
          Traffic of {tunnel.url_part}
        </h2>
      </div>
      <InspectionSwitch model={model} />
      {report?.requests !== 0 && <RequestFilters filter={model.filter} />}
      <RequestList model={model} tunnel={tunnel} />
      <p class="hint">
        Shows requests that reach the upstream, with headers and bodies. They stay in the memory of the agent and are
        never written to disk.{' '}
        {report?.gateway_reports === 'unavailable' &&
          'The gateway does not report which rules of the traffic policy act: requests that a rule answers do not appear here.'}{' '}
        {report !== null &&
          report.gateway_missed > 0 &&
          `The gateway has not reported ${report.gateway_missed.toLocaleString('en')} requests: too many came at a time.`}
      </p>
      {requestId !== undefined && (
        <RequestDialog key={String(isEditing)} model={model} tunnel={tunnel} id={requestId} isEditing={isEditing} />
      )}
    </section>
  );
}

/** In seconds. */
const DURATIONS = [
  { value: '300', label: '5 minutes' },
  { value: '900', label: '15 minutes' },
  { value: '3600', label: '1 hour' },
  { value: '28800', label: '8 hours' },
  { value: '86400', label: '24 hours' },
];

/** Switches inspection on for a time, and off; says what is held. */
function InspectionSwitch({ model }: { model: TrafficModel }): JSX.Element | null {
  const seconds = useSignal('900');
  const { problem, run } = useSubmission();
  const report = model.inspection.value;
  if (report === null) return null;
  const act = (method: string, part: string, body?: object) => run(() => call(method, `${model.path}/${part}`, body));
  const start = () => void act('PUT', 'inspection', { duration_seconds: Number(seconds.value) });
  const query = trafficQuery(model.filter.value).toString();
  const isOn = report.state === 'on';
  return (
    <div class={`card switch ${report.state}`}>
      <p role="status" class="switch-state">
        <Badge tone={isOn ? 'good' : 'neutral'}>{isOn ? 'Inspecting' : 'Not inspecting'}</Badge>{' '}
        <Remaining report={report} />
      </p>
      <div class="switch-actions">
        {isOn ? (
          <Button onClick={() => void act('DELETE', 'inspection')}>Stop</Button>
        ) : (
          <>
            <SelectField label="Inspect for" value={seconds.value} options={DURATIONS} onChange={setter(seconds)} />
            <Button kind="primary" onClick={start}>
              Start inspecting
            </Button>
          </>
        )}
        {report.requests > 0 && (
          <>
            <Button onClick={() => void act('DELETE', 'requests')}>Clear</Button>
            <ButtonLink href={besidePage(`${model.path}/requests.har${query && `?${query}`}`)} download>
              Export HAR
            </ButtonLink>
          </>
        )}
      </div>
      {problem && <ProblemNotice title="That did not work" problem={problem} />}
      <p class="hint">
        {report.requests === 1 ? '1 request' : `${report.requests.toLocaleString('en')} requests`} kept. Memory of all
        tunnels: {byteSize(report.held_bytes)} of {byteSize(report.max_bytes)}.{' '}
        {!isOn && report.requests > 0 && 'What was captured stays for an hour.'}
      </p>
    </div>
  );
}

function Remaining({ report: { until } }: { report: InspectionReport }): JSX.Element | null {
  if (until === null) return null;
  const end = new Date(until);
  const time = end.toLocaleTimeString('en-GB', { timeStyle: 'short' });
  return (
    <span>
      until {time}, {span(end.getTime() - present.value)} left
    </span>
  );
}
