import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { TunnelDetail } from '../../agent/api/operations.ts';
import type { FeedTunnel, PageSuggestions } from '../../agent/api/page/page-routes.ts';
import { AccessForm } from '../ui/access-form.tsx';
import { call } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { goHome } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { PolicyDraft, type Protocol } from './policy-draft.ts';
import { PolicyEditor } from './policy-editor.tsx';

/**
 * Edits the policy of a tunnel in place. Asks for it first, as the live feed has none.
 *
 * @param choosesAccess whether it begins with who may come in, in plain words
 */
export function PolicyDialog({
  tunnel,
  choosesAccess = false,
}: {
  tunnel: FeedTunnel;
  choosesAccess?: boolean;
}): JSX.Element {
  const protocol = tunnel.protocol as Protocol;
  const [draft] = useState(() => new PolicyDraft(() => protocol));
  const loading = useSubmission();
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
        <AccessForm present={tunnel.access} choices={choices} admit={(request) => draft.admit(request)} />
      )}
      {ready.value && <PolicyEditor draft={draft} />}
      <p class="hint">Saving opens the tunnel again, so open connections end.</p>
      <div class="dialog-actions">
        {tunnel.own_policy && <Button onClick={() => void save(async () => null, true)}>Use default policies</Button>}
        <Button onClick={goHome}>Cancel</Button>
        {ready.value && (
          <Button kind="primary" busy={busy} onClick={() => void save(() => draft.read(), false)}>
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
