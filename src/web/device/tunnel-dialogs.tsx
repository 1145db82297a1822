import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { TunnelDetail } from '../../agent/api/agent-operations.ts';
import type { FeedTunnel, PageSuggestions } from '../../agent/api/page/page-routes.ts';
import { AccessForm } from '../ui/access-form.tsx';
import { call } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { setter, TextField } from '../ui/field.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { goHome } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { PolicyDraft, PolicyEditor, type Protocol } from './policy-editor.tsx';
import { ShareDialog } from './share-dialog.tsx';
import { FORWARDS_TO_HINT } from './start-tunnel.tsx';
import { isOption, OptionsDraft, TunnelOptions } from './tunnel-options.tsx';

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

/** Changes what a tunnel forwards to, and its options; its URL stays. */
function ChangeDialog({ tunnel }: { tunnel: FeedTunnel }): JSX.Element {
  const { url, url_part: name, protocol } = tunnel;
  const upstream = useSignal(tunnel.forwards_to);
  const [options] = useState(() => new OptionsDraft(tunnel));
  const { busy, problem, onSubmit } = useSubmission();
  const change = async () => {
    await call('PATCH', `/tunnels/${encodeURIComponent(url)}`, {
      forwards_to: upstream.value.trim(),
      ...options.changes(protocol, upstream.value),
    });
    goHome();
  };
  return (
    <Dialog title={`Change ${name}`} onClose={goHome} hasFocusField>
      <form onSubmit={onSubmit(change)} noValidate>
        {problem && (
          <ProblemNotice
            title="The tunnel was not changed"
            problem={problem}
            isMarked={(place) => place === 'forwards_to' || isOption(place)}
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
        <TunnelOptions
          draft={options}
          protocol={protocol}
          upstream={upstream.value}
          problems={problem?.details ?? {}}
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

/**
 * Edits the policy of a tunnel in place. Asks for it first, as the live feed has none.
 *
 * @param choosesAccess whether it begins with who may come in, in plain words
 */
function PolicyDialog({ tunnel, choosesAccess = false }: { tunnel: FeedTunnel; choosesAccess?: boolean }): JSX.Element {
  const protocol = tunnel.protocol as Protocol;
  const [draft] = useState(() => new PolicyDraft(() => protocol));
  const loading = useSubmission();
  const writing = useSubmission();
  const { busy, problem, run } = useSubmission();
  const path = `/tunnels/${encodeURIComponent(tunnel.url)}`;
  // Nobody types into a text that is about to be replaced.
  const ready = useSignal(false);
  useEffect(() => {
    void loading.run(async () => {
      const { policy } = await call<TunnelDetail>('GET', path);
      await draft.show(withPhases(JSON.parse(policy), protocol));
      ready.value = true;
    });
  }, []);
  const save = async (policyOf: () => Promise<object | null>, isDefault: boolean) => {
    const failed = await run(async () => {
      const policy = await policyOf();
      if (policy === null && !isDefault) return;
      await call('PATCH', path, { policy });
      goHome();
    });
    if (failed && !isDefault) await draft.locate(failed);
  };
  return (
    <Dialog title={`${choosesAccess ? 'Who may come in:' : 'Policy of'} ${tunnel.url_part}`} onClose={goHome} wide>
      {problem && (
        <ProblemNotice
          title="The policy was not changed"
          problem={problem}
          isMarked={(place) => draft.isMarked(place)}
        />
      )}
      {!tunnel.own_policy && (
        <p class="hint">These are the default policies. Save a changed policy to give this tunnel its own.</p>
      )}
      {loading.problem && <ProblemNotice title="The policy could not be loaded" problem={loading.problem} />}
      {loading.busy && <p class="with-spinner">Loading…</p>}
      {ready.value && choosesAccess && (
        <AccessForm
          present={tunnel.access}
          url={tunnel.url ?? ''}
          people={draft.people}
          choices={choices}
          admit={(request) => draft.admit(request)}
          writing={writing}
        />
      )}
      {ready.value && <PolicyEditor draft={draft} />}
      <p class="hint">Saving opens the tunnel again, so open connections end.</p>
      <div class="dialog-actions">
        {tunnel.own_policy && <Button onClick={() => void save(async () => null, true)}>Use default policies</Button>}
        <Button onClick={goHome}>Cancel</Button>
        {ready.value && (
          <Button kind="primary" busy={busy || writing.busy} onClick={() => void save(() => draft.read(), false)}>
            Save policy
          </Button>
        )}
      </div>
    </Dialog>
  );
}

const choices = async () => (await call<PageSuggestions>('GET', '/page/suggestions')).access;

/** Names the rules `inbound` and `outbound` as the hint does, where that means the same. */
function withPhases(policy: object, protocol: Protocol): object {
  const names: Readonly<Record<string, string>> = { inbound: 'on_http_request', outbound: 'on_http_response' };
  // The agent refuses phases beside `enabled`.
  if (protocol !== 'http' || !Object.keys(policy).every((key) => key in names)) return policy;
  return Object.fromEntries(Object.entries(policy).map(([key, value]) => [names[key] ?? key, value]));
}
