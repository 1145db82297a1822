import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { RequestDetail, RequestSummary } from '../../../agent/api/inspection/inspection-reports.ts';
import { readablePath } from '../../../agent/api/inspection/shown-requests.ts';
import type { FeedTunnel } from '../../../agent/api/page/page-routes.ts';
import { ApiProblem, call } from '../../ui/api.ts';
import { Button } from '../../ui/button.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { ProblemNotice } from '../../ui/notice.tsx';
import { goTo } from '../../ui/router.ts';
import { ReplayForm } from './replay-form.tsx';
import { RequestView } from './request-view.tsx';
import type { TrafficModel } from './traffic-model.ts';

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
  }, [id, revealed.value, summary?.state, summary?.status, summary?.answered_by]);
  useEffect(() => {
    revealed.value = false;
  }, [id]);
  // Of the request before, until this one has come.
  const { value: found } = loaded;
  const detail = found instanceof ApiProblem || found?.id !== id ? null : found;
  const title = detail ?? summary;
  const close = () => goTo('tunnels', tunnel.id, 'traffic');
  return (
    <Dialog title={title ? `${title.method} ${readablePath(title.path)}` : 'Request'} onClose={close} wide>
      {detail === null && !(found instanceof ApiProblem) && <p class="with-spinner">Loading…</p>}
      {!isEditing && <Neighbours model={model} tunnelId={tunnel.id} id={id} />}
      {found instanceof ApiProblem && <ProblemNotice title="The request could not be loaded" problem={found} />}
      {detail && isEditing && <ReplayForm model={model} tunnelId={tunnel.id} detail={detail} />}
      {detail && !isEditing && (
        <RequestView
          key={id}
          model={model}
          tunnel={tunnel}
          detail={{ ...detail, ...progressOf(summary) }}
          revealed={revealed}
        />
      )}
    </Dialog>
  );
}

/** Leads to the requests before and after, of those that the filter shows. */
function Neighbours({
  model,
  tunnelId,
  id,
}: {
  model: TrafficModel;
  tunnelId: string;
  id: string;
}): JSX.Element | null {
  const { value: listed } = model.matching;
  const at = listed.findIndex((each) => each.id === id);
  if (at === -1) return null;
  const show = (neighbour: RequestSummary) => () => goTo('tunnels', tunnelId, 'traffic', neighbour.id);
  const [newer, older] = [listed[at - 1], listed[at + 1]];
  return (
    <div class="request-actions">
      {newer && <Button onClick={show(newer)}>Newer</Button>}
      {older && <Button onClick={show(older)}>Older</Button>}
    </div>
  );
}

/** What changes while a request is open. The rest of a summary is masked even while secrets are shown. */
function progressOf(summary: RequestSummary | undefined): Partial<RequestSummary> {
  if (summary === undefined) return {};
  const { state, status, duration_ms, request_bytes, response_bytes, messages } = summary;
  return { state, status, duration_ms, request_bytes, response_bytes, messages };
}
