import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { InspectionReport } from '../../../agent/api/inspection/inspection-reports.ts';
import { call } from '../../ui/api.ts';
import { Button, ButtonLink } from '../../ui/button.tsx';
import { byteSize } from '../../ui/byte-size.ts';
import { SelectField, setter } from '../../ui/field.tsx';
import { Badge, ProblemNotice } from '../../ui/notice.tsx';
import { useSubmission } from '../../ui/submission.ts';
import { present, span } from '../../ui/time-span.ts';
import { queryOf, type TrafficModel } from './traffic-model.ts';

/** In seconds. */
const DURATIONS = [
  { value: '300', label: '5 minutes' },
  { value: '900', label: '15 minutes' },
  { value: '3600', label: '1 hour' },
  { value: '28800', label: '8 hours' },
  { value: '86400', label: '24 hours' },
];

/** Switches inspection on for a time, and off; says what is held. */
export function InspectionSwitch({ model }: { model: TrafficModel }): JSX.Element | null {
  const seconds = useSignal('900');
  const { problem, run } = useSubmission();
  const report = model.inspection.value;
  if (report === null) return null;
  const act = (method: string, part: string, body?: object) => run(() => call(method, `${model.path}/${part}`, body));
  const start = () => void act('PUT', 'inspection', { duration_seconds: Number(seconds.value) });
  const query = queryOf(model.filter.value).toString();
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
            <ButtonLink href={`${model.path}/requests.har${query && `?${query}`}`} download>
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
