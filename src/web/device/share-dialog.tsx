import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { TunnelShareLink } from '../../agent/api/agent-operations.ts';
import type { FeedTunnel } from '../../agent/api/page/page-routes.ts';
import { takesLinks } from '../ui/access-form.tsx';
import { call } from '../ui/api.ts';
import { Button, CopyButton } from '../ui/button.tsx';
import { Dialog, focusHeading } from '../ui/dialog.tsx';
import { Choice, SelectField, setter, TextField } from '../ui/field.tsx';
import { TrashIcon } from '../ui/icons.tsx';
import { Notice, ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { goHome } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { present, span } from '../ui/time-span.ts';

const HOUR_S = 3_600;
const LIVES = [
  { value: String(HOUR_S), label: '1 hour' },
  { value: String(24 * HOUR_S), label: '24 hours' },
  { value: String(7 * 24 * HOUR_S), label: '7 days' },
  { value: String(30 * 24 * HOUR_S), label: '30 days' },
] as const;

/** Makes share links to a tunnel, and lists and revokes them. */
export function ShareDialog({ tunnel }: { tunnel: FeedTunnel }): JSX.Element {
  const links = useSignal<readonly TunnelShareLink[] | null>(null);
  const made = useSignal<TunnelShareLink | null>(null);
  const loading = useSubmission();
  const load = async () => {
    const all = await call<TunnelShareLink[]>('GET', '/share_links');
    links.value = all.filter(({ url }) => url === tunnel.url);
  };
  const forget = (id: string) => {
    links.value = links.value?.filter((link) => link.id !== id) ?? null;
    // The button that had the focus is gone.
    focusHeading(document.querySelector('dialog h2'));
  };
  useEffect(() => void loading.run(load), []);
  if (made.value?.link) return <MadeDialog name={tunnel.url_part} link={made.value.link} />;
  return (
    <Dialog title={`Share ${tunnel.url_part}`} onClose={goHome}>
      {loading.problem && <ProblemNotice title="The share links could not be loaded" problem={loading.problem} />}
      {loading.problem === null && <ShareForm tunnel={tunnel} onMade={setter(made)} />}
      {links.value !== null && links.value.length > 0 && (
        <>
          <h3>Links</h3>
          <ul class="shares">
            {links.value.map((link) => (
              <PresentLink key={link.id} link={link} onRevoked={() => forget(link.id)} />
            ))}
          </ul>
        </>
      )}
      <div class="dialog-actions">
        <Button onClick={goHome}>Close</Button>
      </div>
    </Dialog>
  );
}

function ShareForm({ tunnel, onMade }: { tunnel: FeedTunnel; onMade: (link: TunnelShareLink) => void }): JSX.Element {
  const life = useSignal<(typeof LIVES)[number]['value']>(LIVES[1].value);
  const browsers = useSignal<'one' | 'any'>('one');
  const description = useSignal('');
  const { busy, problem, onSubmit } = useSubmission();
  const isReady = takesLinks(tunnel.access);
  const make = async () => {
    const body = {
      expires_in: Number(life.value),
      ...(browsers.value === 'one' && { max_uses: 1 }),
      ...(description.value.trim() !== '' && { description: description.value.trim() }),
      protect: !isReady,
    };
    onMade(await call<TunnelShareLink>('POST', `/tunnels/${encodeURIComponent(tunnel.url)}/share_links`, body));
  };
  return (
    <form onSubmit={onSubmit(make)} noValidate>
      {problem && <ProblemNotice title="No link was made" problem={problem} />}
      {!isReady && (
        <Notice tone="warning">
          {tunnel.access.includes('everyone')
            ? 'Everyone with the URL can come in now. With the first link, its policy changes: from then on, only links let people in.'
            : 'Its policy changes with the first link: from then on, a link lets people in, too.'}{' '}
          Open connections end.
        </Notice>
      )}
      <SelectField label="Works for" value={life.value} options={LIVES} onChange={setter(life)} />
      <Choice
        label="Can be opened by"
        value={browsers.value}
        options={[
          { value: 'one', label: 'One browser' },
          { value: 'any', label: 'Any number' },
        ]}
        onChange={setter(browsers)}
      />
      <TextField label="For" value={description.value} onInput={setter(description)} hint="Optional: whom it is for." />
      <Button kind="primary" type="submit" busy={busy}>
        {isReady ? 'Make link' : 'Change policy and make link'}
      </Button>
    </form>
  );
}

function MadeDialog({ name, link }: { name: string; link: string }): JSX.Element {
  return (
    <Dialog title={`Link to ${name}`} onClose={goHome}>
      <Notice tone="warning">Copy it now: it is shown only once.</Notice>
      <div class="with-copy">
        <code class="url">{link}</code>
        <CopyButton text={link} what="the link" />
      </div>
      <QrCode text={link} label="QR code of the link" />
      <div class="dialog-actions">
        <Button kind="primary" onClick={goHome}>
          Done
        </Button>
      </div>
    </Dialog>
  );
}

function PresentLink({ link, onRevoked }: { link: TunnelShareLink; onRevoked: () => void }): JSX.Element {
  const { id, description, uses, max_uses: max, expires_at } = link;
  const { busy, problem, run } = useSubmission();
  const left = new Date(expires_at).getTime() - present.value;
  const revoke = async () => {
    await call('DELETE', `/share_links/${id}`);
    onRevoked();
  };
  return (
    <li>
      <div>
        <strong>{description ?? id}</strong>
        <p class="hint">
          {left > 0 ? `Works for ${span(left)}` : 'Expired'} · opened by {max === null ? uses : `${uses} of ${max}`}
        </p>
        {problem && <ProblemNotice title="The link was not revoked" problem={problem} />}
      </div>
      <Button kind="quiet" busy={busy} label={`Revoke: ${description ?? id}`} onClick={() => void run(revoke)}>
        <TrashIcon />
        Revoke
      </Button>
    </li>
  );
}
