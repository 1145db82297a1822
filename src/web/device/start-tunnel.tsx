import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { CreatedTunnel } from '../../agent/api/agent-operations.ts';
import type { PageSuggestions } from '../../agent/api/page/page-routes.ts';
import { call } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { Choice, isComplete, setter, TextField } from '../ui/field.tsx';
import { ShieldIcon } from '../ui/icons.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { useSubmission } from '../ui/submission.ts';
import { PolicyDraft, PolicyEditor } from './policy-editor.tsx';
import { isOption, OptionsDraft, TunnelOptions } from './tunnel-options.tsx';

export const FORWARDS_TO_HINT = 'A port of this device, host:port, http(s)://host:port or unix:/path.';
type Protocol = 'http' | 'tcp' | 'tls';
const PROTOCOLS: readonly { value: Protocol; label: string; hint: string }[] = [
  { value: 'http', label: 'HTTP', hint: 'Served as HTTPS with a certificate.' },
  { value: 'tcp', label: 'TCP', hint: 'Any TCP traffic, at a port of the gateway.' },
  { value: 'tls', label: 'TLS', hint: 'TLS passes through to the upstream.' },
];
/** Those whose problems are shown below them. */
const FIELDS: readonly string[] = ['forwards_to', 'domain'];

/** More ports are shown on demand. */
const FEW_PORTS = 8;

/** The form that starts a tunnel. */
export function StartTunnel({ onClose }: { onClose: () => void }): JSX.Element {
  const upstream = useSignal('');
  const protocol = useSignal<Protocol>('http');
  const domain = useSignal('');
  const { busy, problem, run } = useSubmission();
  /** Why the tunnel that was started has another domain. */
  const remark = useSignal<string | null>(null);
  const hasPolicy = useSignal(false);
  const form = useRef<HTMLFormElement>(null);
  const allPorts = useSignal(false);
  const [draft] = useState(() => new PolicyDraft(() => protocol.value));
  const [options] = useState(() => new OptionsDraft());
  const suggestions = useSignal<Omit<PageSuggestions, 'access'>>({ ports: [], ending: null, hasOwnSite: false });
  useEffect(() => {
    call<PageSuggestions>('GET', '/page/suggestions').then(
      (found) => {
        suggestions.value = found;
      },
      () => {}, // the form works without suggestions
    );
  }, []);
  const create = async () => {
    const policy = hasPolicy.value && !draft.isEmpty ? await draft.read() : undefined;
    if (policy === null) return;
    const { notice } = await call<CreatedTunnel>('POST', '/tunnels', {
      protocol: protocol.value,
      forwards_to: upstream.value.trim(),
      ...(domain.value.trim() !== '' && { domain: domain.value.trim() }),
      ...(policy && { policy }),
      ...options.changes(protocol.value, upstream.value),
    });
    if (notice === undefined) onClose();
    else remark.value = notice;
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!isComplete(event.currentTarget)) return;
    const failed = await run(create);
    if (failed && hasPolicy.value) await draft.locate(failed);
    // The field that is wrong, which may be out of view.
    window.requestAnimationFrame(() => form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus());
  };
  if (remark.value !== null) {
    return (
      <Dialog title="Tunnel started" onClose={onClose}>
        <p role="status">{remark.value}</p>
        <div class="dialog-actions">
          <Button kind="primary" onClick={onClose}>
            Close
          </Button>
        </div>
      </Dialog>
    );
  }
  const details = problem?.details ?? {};
  const { ports } = suggestions.value;
  return (
    <Dialog title="Start a tunnel" onClose={onClose} hasFocusField>
      <form ref={form} onSubmit={submit} noValidate>
        {problem && (
          <ProblemNotice
            title="The tunnel was not started"
            problem={problem}
            isMarked={(place) =>
              FIELDS.includes(place) || isOption(place) || (hasPolicy.value && draft.isMarked(place))
            }
          />
        )}
        <TextField
          label="Forward to"
          value={upstream.value}
          onInput={setter(upstream)}
          hint={FORWARDS_TO_HINT}
          problem={details.forwards_to}
          autofocus
        />
        {ports.length > 0 && (
          <fieldset class="field chips">
            <legend class="hint">Ports in use here:</legend>
            {(allPorts.value ? ports : ports.slice(0, FEW_PORTS)).map((port) => (
              <button
                key={port}
                type="button"
                class="chip"
                onClick={() => {
                  upstream.value = String(port);
                }}
              >
                {port}
              </button>
            ))}
            {ports.length > FEW_PORTS && !allPorts.value && (
              <button
                type="button"
                class="chip"
                onClick={() => {
                  allPorts.value = true;
                }}
              >
                All {ports.length}
              </button>
            )}
          </fieldset>
        )}
        <Choice label="Protocol" value={protocol.value} onChange={setter(protocol)} options={PROTOCOLS} />
        <TextField
          label="Domain"
          value={domain.value}
          onInput={setter(domain)}
          hint={domainHint(protocol.value, domain.value.trim(), suggestions.value)}
          problem={details.domain}
        />
        <TunnelOptions draft={options} protocol={protocol.value} upstream={upstream.value} problems={details} />
        {hasPolicy.value ? (
          <PolicyEditor draft={draft} />
        ) : (
          <p class="hint">
            Anyone with the URL can reach the upstream, unless a policy asks for a password, a certificate or an
            address.
          </p>
        )}
        <div>
          <Button
            onClick={() => {
              hasPolicy.value = !hasPolicy.value;
            }}
          >
            <ShieldIcon />
            {hasPolicy.value ? 'Remove the policy' : 'Add a traffic policy'}
          </Button>
        </div>
        <div class="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy}>
            {busy ? 'Starting…' : 'Start tunnel'}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** What becomes of a domain. At a site, a single label is a name below it. */
function domainHint(
  protocol: Protocol,
  domain: string,
  { ending, hasOwnSite }: Pick<PageSuggestions, 'ending' | 'hasOwnSite'>,
): string {
  if (protocol === 'tcp') return 'Optional: host:port. Without it, the gateway chooses.';
  if (ending === null || domain.includes('.')) return 'Optional. Without it, the gateway chooses.';
  const whole = (domain || 'label') + ending;
  return hasOwnSite
    ? `Optional. A label is enough: ${whole}. Without a label, the name is random.`
    : `Optional. A label is enough: ${whole}. If that is taken, the name of this device is added. Without a label, the name is random.`;
}
