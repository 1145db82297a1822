import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { RequestDetail } from '../../../agent/api/inspection/inspection-reports.ts';
import { call } from '../../ui/api.ts';
import { Button } from '../../ui/button.tsx';
import { setter, TextArea, TextField } from '../../ui/field.tsx';
import { ProblemNotice } from '../../ui/notice.tsx';
import { goTo } from '../../ui/router.ts';
import { useSubmission } from '../../ui/submission.ts';
import type { TrafficModel } from './traffic-model.ts';

type Header = RequestDetail['request']['headers'][number];

/** Changes a captured request, and sends it. */
export function ReplayForm({
  model,
  tunnelId,
  detail,
}: {
  model: TrafficModel;
  tunnelId: string;
  detail: RequestDetail;
}): JSX.Element {
  const { body } = detail.request;
  const method = useSignal(detail.method);
  const path = useSignal(detail.path);
  const headers = useSignal(detail.request.headers.map(({ name, value }) => `${name}: ${value}`).join('\n'));
  const content = useSignal(body?.text ?? '');
  const headerProblem = useSignal<string | undefined>(undefined);
  const { busy, problem, run } = useSubmission();
  const isBinary = body !== null && body.text === null;
  const close = () => goTo('tunnels', tunnelId, 'traffic', detail.id);
  const submit = (event: Event) => {
    event.preventDefault();
    const parsed = parseHeaders(headers.value);
    headerProblem.value = typeof parsed === 'number' ? `line ${parsed}: write name: value` : undefined;
    if (typeof parsed === 'number') return;
    void run(() =>
      replay(model, tunnelId, detail.id, {
        method: method.value.trim(),
        path: path.value.trim(),
        headers: parsed,
        ...(!isBinary && { body: content.value === '' ? null : { text: content.value } }),
      }),
    );
  };
  const details = problem?.details ?? {};
  return (
    <form onSubmit={submit} noValidate>
      <p class="hint">Goes from the agent straight to the upstream: the traffic policy does not apply.</p>
      {problem && <ProblemNotice title="The request was not sent" problem={problem} />}
      <TextField label="Method" value={method.value} onInput={setter(method)} problem={details.method} />
      <TextField label="Path and query" value={path.value} onInput={setter(path)} problem={details.path} />
      <TextArea
        label="Headers"
        value={headers.value}
        onInput={setter(headers)}
        hint="One per line: name: value. A masked value that stays unchanged is sent as it was."
        problem={headerProblem.value ?? details.headers}
        rows={8}
      />
      {isBinary ? (
        <p class="hint">The body is binary; it is sent as it was.</p>
      ) : (
        <TextArea label="Body" value={content.value} onInput={setter(content)} problem={details.body} rows={6} />
      )}
      <div class="dialog-actions">
        <Button onClick={close}>Cancel</Button>
        <Button kind="primary" type="submit" busy={busy}>
          Send
        </Button>
      </div>
    </form>
  );
}

/** @returns the headers, or the number of the first line that is none */
function parseHeaders(lines: string): Header[] | number {
  const headers: Header[] = [];
  for (const [at, line] of lines.split('\n').entries()) {
    if (line.trim() === '') continue;
    const colon = line.indexOf(':');
    if (colon < 1) return at + 1;
    headers.push({ name: line.slice(0, colon).trim(), value: line.slice(colon + 1).trim() });
  }
  return headers;
}

/** What differs from the captured request. */
export interface ReplayChanges {
  method?: string;
  path?: string;
  headers?: { name: string; value: string }[];
  body?: { text: string } | null;
}

/**
 * Sends a captured request again, and shows the new one.
 *
 * @throws {ApiProblem}
 */
export async function replay(
  model: TrafficModel,
  tunnelId: string,
  requestId: string,
  changes: ReplayChanges,
): Promise<void> {
  const path = `${model.path}/requests/${encodeURIComponent(requestId)}/replay`;
  const repeated = await call<RequestDetail>('POST', path, changes);
  model.add(repeated);
  goTo('tunnels', tunnelId, 'traffic', repeated.id);
}
