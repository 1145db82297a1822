import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { FeedTunnel } from '../../agent/api/page/page-routes.ts';
import { call } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { setter, TextField } from '../ui/field.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { goHome } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { PolicyDialog } from './policy-dialog.tsx';
import { ShareDialog } from './share-dialog.tsx';
import { FORWARDS_TO_HINT } from './start-tunnel.tsx';

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
  if (action === 'access') return <PolicyDialog tunnel={tunnel} choosesAccess />;
  if (action === 'share') return <ShareDialog tunnel={tunnel} />;
  if (action === 'change') return <ChangeDialog tunnel={tunnel} />;
  if (action === 'delete') return <DeleteDialog tunnel={tunnel} forget={forget} />;
  return null;
}

function QrDialog({ tunnel: { url, url_part: name } }: { tunnel: FeedTunnel }): JSX.Element {
  return (
    <Dialog title={`QR code: ${name}`} onClose={goHome}>
      <QrCode text={url} label={`QR code: ${url}`} />
      <p class="url center">{url}</p>
    </Dialog>
  );
}

/** Changes what a tunnel forwards to; its URL stays. */
function ChangeDialog({ tunnel: { url, url_part: name, forwards_to: before } }: { tunnel: FeedTunnel }): JSX.Element {
  const upstream = useSignal(before);
  const { busy, problem, onSubmit } = useSubmission();
  const change = async () => {
    await call('PATCH', `/tunnels/${encodeURIComponent(url)}`, { forwards_to: upstream.value.trim() });
    goHome();
  };
  return (
    <Dialog title={`Change ${name}`} onClose={goHome} hasFocusField>
      <form onSubmit={onSubmit(change)} noValidate>
        {problem && (
          <ProblemNotice
            title="The tunnel was not changed"
            problem={problem}
            isMarked={(place) => place === 'forwards_to'}
          />
        )}
        <TextField
          label="Forward to"
          hint={FORWARDS_TO_HINT}
          value={upstream.value}
          onInput={setter(upstream)}
          problem={problem?.details.forwards_to}
          autofocus
        />
        <p class="hint">{url} stays the same. Requests under way may be interrupted.</p>
        <div class="dialog-actions">
          <Button onClick={goHome}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy}>
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ tunnel, forget }: Pick<TunnelDialogsProps, 'tunnel' | 'forget'>): JSX.Element {
  const { url, url_part: name, forwards_to: upstream } = tunnel;
  const { busy, problem, run } = useSubmission();
  const remove = async () => {
    await call('DELETE', `/tunnels/${encodeURIComponent(url)}`);
    forget();
    goHome();
  };
  return (
    <Dialog title={`Delete ${name}?`} onClose={goHome}>
      {problem && <ProblemNotice title="The tunnel was not deleted" problem={problem} />}
      <p>This stops:</p>
      <ul>
        <li>{url}: clients get an error from now on.</li>
        <li>The address becomes free. Other agents that may use it can take it.</li>
      </ul>
      <p>{upstream} itself keeps running.</p>
      <div class="dialog-actions">
        <Button onClick={goHome}>Cancel</Button>
        <Button kind="danger" busy={busy} onClick={() => void run(remove)}>
          Delete tunnel
        </Button>
      </div>
    </Dialog>
  );
}
