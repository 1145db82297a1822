import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { RequestDetail, RequestSummary } from '../../../agent/api/inspection/inspection-reports.ts';
import type { FeedTunnel } from '../../../agent/api/page/feed.ts';
import { ApiProblem, call } from '../../ui/api.ts';
import { Dialog } from '../../ui/dialog.tsx';
import { ProblemNotice } from '../../ui/notice.tsx';
import { goTo } from '../../ui/router.ts';
import { ReplayForm } from './replay-form.tsx';
import { RequestView } from './request-view.tsx';
import { inspector } from './strings.ts';
import type { TrafficModel } from './traffic-model.ts';

const text = inspector.detail;

export interface RequestDialogProps {
  model: TrafficModel;
  tunnel: FeedTunnel;
  id: string;
  isEditing: boolean;
}

/** A request in detail, kept up to date while it is open. */
export function RequestDialog({ model, tunnel, id, isEditing }: RequestDialogProps): JSX.Element {
  const loaded = useSignal<RequestDetail | ApiProblem | null>(null);
  const revealed = useSignal(false);
  const summary = model.request(id);
  useEffect(() => {
    let isCurrent = true;
    call<RequestDetail>(
      'GET',
      `${model.path}/requests/${encodeURIComponent(id)}${revealed.value ? '?reveal=true' : ''}`,
    )
      .catch((error: unknown) => {
        if (error instanceof ApiProblem) return error;
        throw error;
      })
      .then((found) => {
        if (isCurrent) loaded.value = found;
      });
    return () => {
      isCurrent = false;
    };
  }, [revealed.value, summary?.state, summary?.status, summary?.answered_by]);
  const { value: found } = loaded;
  const detail = found instanceof ApiProblem ? null : found;
  const title = detail ?? summary;
  const close = () => goTo('tunnels', tunnel.id, 'traffic');
  return (
    <Dialog title={title ? `${title.method} ${title.path}` : text.unknown} onClose={close} wide>
      {found === null && <p class="with-spinner">{text.loading}</p>}
      {found instanceof ApiProblem && <ProblemNotice title={text.gone} problem={found} />}
      {detail && isEditing && <ReplayForm model={model} tunnelId={tunnel.id} detail={detail} />}
      {detail && !isEditing && (
        <RequestView model={model} tunnel={tunnel} detail={{ ...detail, ...progressOf(summary) }} revealed={revealed} />
      )}
    </Dialog>
  );
}

/** What changes while a request is open. The rest of a summary is masked even while secrets are shown. */
function progressOf(summary: RequestSummary | undefined): Partial<RequestSummary> {
  if (summary === undefined) return {};
  const { state, status, duration_ms, request_bytes, response_bytes, messages } = summary;
  return { state, status, duration_ms, request_bytes, response_bytes, messages };
}
