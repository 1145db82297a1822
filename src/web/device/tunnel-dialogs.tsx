import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { FeedTunnel } from '../../agent/api/page/feed.ts';
import { device, shared } from '../strings.ts';
import { call } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { TextField } from '../ui/field.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { goHome } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { PolicyDialog } from './policy-dialog.tsx';

export interface TunnelDialogsProps {
  tunnel: FeedTunnel;
  action: string;
  /** Takes the tunnel from the page. */
  forget: () => void;
}

/** What one can do with a tunnel. */
export function TunnelDialogs({ tunnel, action, forget }: TunnelDialogsProps): JSX.Element | null {
  if (action === 'qr') return <QrDialog tunnel={tunnel} />;
  if (action === 'policy') return <PolicyDialog tunnel={tunnel} />;
  if (action === 'change') return <ChangeDialog tunnel={tunnel} />;
  if (action === 'delete') return <DeleteDialog tunnel={tunnel} forget={forget} />;
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
  const { busy, problem, onSubmit } = useSubmission();
  const change = async () => {
    await call('PATCH', `/tunnels/${encodeURIComponent(url)}`, { forwards_to: upstream.value.trim() });
    goHome();
  };
  return (
    <Dialog title={text.title(name)} onClose={goHome} hasFocusField>
      <form onSubmit={onSubmit(change)} noValidate>
        {problem && (
          <ProblemNotice title={text.failed} problem={problem} isMarked={(place) => place === 'forwards_to'} />
        )}
        <TextField
          label={device.start.forwardsTo}
          hint={device.start.forwardsToHint}
          value={upstream.value}
          onInput={(value) => {
            upstream.value = value;
          }}
          problem={problem?.details.forwards_to}
          autofocus
        />
        <p class="hint">{text.stays(url)}</p>
        <div class="dialog-actions">
          <Button onClick={goHome}>{shared.cancel}</Button>
          <Button kind="primary" type="submit" busy={busy}>
            {text.submit}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ tunnel, forget }: Pick<TunnelDialogsProps, 'tunnel' | 'forget'>): JSX.Element {
  const text = device.remove;
  const { url, url_part: name, forwards_to: upstream } = tunnel;
  const { busy, problem, run } = useSubmission();
  const remove = async () => {
    await call('DELETE', `/tunnels/${encodeURIComponent(url)}`);
    forget();
    goHome();
  };
  return (
    <Dialog title={text.title(name)} onClose={goHome}>
      {problem && <ProblemNotice title={text.failed} problem={problem} />}
      <p>{text.stops}</p>
      <ul>
        <li>{text.url(url)}</li>
        <li>{text.address}</li>
      </ul>
      <p>{text.upstream(upstream)}</p>
      <div class="dialog-actions">
        <Button onClick={goHome}>{shared.cancel}</Button>
        <Button kind="danger" busy={busy} onClick={() => void run(remove)}>
          {text.submit}
        </Button>
      </div>
    </Dialog>
  );
}
