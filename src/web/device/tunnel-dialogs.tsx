import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { FeedTunnel } from '../../agent/api/page/feed.ts';
import { device, shared } from '../strings.ts';
import { ApiProblem, call } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { TextField } from '../ui/field.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { goHome } from '../ui/router.ts';
import { PolicyDialog } from './policy-dialog.tsx';

/** What one can do with a tunnel. */
export function TunnelDialogs({ tunnel, action }: { tunnel: FeedTunnel; action: string }): JSX.Element | null {
  if (action === 'qr') return <QrDialog tunnel={tunnel} />;
  if (action === 'policy') return <PolicyDialog tunnel={tunnel} />;
  if (action === 'change') return <ChangeDialog tunnel={tunnel} />;
  if (action === 'delete') return <DeleteDialog tunnel={tunnel} />;
  return null;
}

function QrDialog({ tunnel: { url, url_part: name } }: { tunnel: FeedTunnel }): JSX.Element {
  return (
    <Dialog title={shared.qrTitle(name)} onClose={goHome}>
      <QrCode text={url} label={shared.qrTitle(url)} />
      <p class="url center">{url}</p>
    </Dialog>
  );
}

/** Changes what a tunnel forwards to; its URL stays. */
function ChangeDialog({ tunnel: { url, url_part: name, forwards_to: before } }: { tunnel: FeedTunnel }): JSX.Element {
  const text = device.change;
  const upstream = useSignal(before);
  const problem = useSignal<ApiProblem | null>(null);
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy.value) return;
    busy.value = true;
    problem.value = null;
    try {
      await call('PATCH', `/tunnels/${encodeURIComponent(url)}`, { forwards_to: upstream.value.trim() });
      goHome();
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      problem.value = error;
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog title={text.title(name)} onClose={goHome} hasFocusField>
      <form onSubmit={submit} noValidate>
        {problem.value && (
          <ProblemNotice title={text.failed} problem={problem.value} isMarked={(place) => place === 'forwards_to'} />
        )}
        <TextField
          label={device.start.forwardsTo}
          hint={device.start.forwardsToHint}
          value={upstream.value}
          onInput={(value) => {
            upstream.value = value;
          }}
          problem={problem.value?.details.forwards_to}
          autofocus
        />
        <p class="hint">{text.stays(url)}</p>
        <div class="dialog-actions">
          <Button onClick={goHome}>{shared.cancel}</Button>
          <Button kind="primary" type="submit" busy={busy.value}>
            {text.submit}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ tunnel: { url, url_part: name, forwards_to: upstream } }: { tunnel: FeedTunnel }): JSX.Element {
  const text = device.remove;
  const problem = useSignal<ApiProblem | null>(null);
  const busy = useSignal(false);
  const submit = async () => {
    busy.value = true;
    problem.value = null;
    try {
      await call('DELETE', `/tunnels/${encodeURIComponent(url)}`);
      goHome();
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      problem.value = error;
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog title={text.title(name)} onClose={goHome}>
      {problem.value && <ProblemNotice title={text.failed} problem={problem.value} />}
      <p>{text.stops}</p>
      <ul>
        <li>{text.url(url)}</li>
        <li>{text.address}</li>
      </ul>
      <p>{text.upstream(upstream)}</p>
      <div class="dialog-actions">
        <Button onClick={goHome}>{shared.cancel}</Button>
        <Button kind="danger" busy={busy.value} onClick={() => void submit()}>
          {text.submit}
        </Button>
      </div>
    </Dialog>
  );
}
