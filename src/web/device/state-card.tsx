import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { FeedSnapshot } from '../../agent/api/page/page-routes.ts';
import { AddressView } from '../ui/address.tsx';
import { CopyButton } from '../ui/button.tsx';
import { spanSince } from '../ui/time-span.ts';
import { type FindingView, runDoctor } from './doctor-view.tsx';
import type { DeviceModel } from './model.ts';
import { budgetText, megabytes, verdictOn } from './verdict.ts';

/** The device's state, large, with what to do about it. */
export function StateCard({ model, status }: { model: DeviceModel; status: FeedSnapshot['status'] }): JSX.Element {
  const verdict = verdictOn(status, model.connection.state.value, spanSince);
  const { session, tunnels, remote_api: own, clock, addresses, data_budget: budget } = status;
  return (
    <section class={`card state ${verdict.tone}`} aria-labelledby="state">
      <div class="state-head">
        <span class="lamp" aria-hidden="true" />
        <div role="status">
          <h2 id="state">{verdict.title}</h2>
          <p>{verdict.detail}</p>
        </div>
      </div>
      {verdict.reason !== null && (
        <p class="reason">
          <strong>Reason:</strong> {verdict.reason}
        </p>
      )}
      {verdict.needsRemedy && <Remedy key={verdict.title} known={session.last_error?.message ?? null} />}
      <dl class="facts">
        <div>
          <dt>Tunnels online</dt>
          <dd>
            {tunnels.online} of {tunnels.total}
          </dd>
        </div>
        <div>
          <dt>Running for</dt>
          <dd>{spanSince(model.started.value)}</dd>
        </div>
        {session.second_gateway !== undefined && (
          <div>
            <dt>Sessions</dt>
            <dd>2</dd>
          </div>
        )}
        <div>
          <dt>Reconnects</dt>
          <dd>{session.reconnects}</dd>
        </div>
      </dl>
      {budget !== null && (
        <details class="hint">
          <summary>Data: {budgetText(budget)}</summary>
          <ul class="plain">
            {budget.tunnels.map(({ url, bytes }) => (
              <li key={url}>
                {megabytes(bytes)} MB: {url}
              </li>
            ))}
            <li>The rest: connections, heartbeats, and other tunnels.</li>
          </ul>
        </details>
      )}
      {clock.source === 'gateway' && (
        <p class="hint">
          The clock of this device is wrong. The agent uses the time that its gateway proves, for itself only.
        </p>
      )}
      {own && (
        <div class="with-action">
          <span class="hint">Own domain</span>
          <AddressView url={own.url} />
          <CopyButton text={own.url} what="Own domain" />
        </div>
      )}
      {'gateway_https' in addresses && (
        <div class="hint">
          <p>Embedded gateway: the URLs work on this machine only.</p>
          <details>
            <summary>Browsers warn of them: ERR_CERT_AUTHORITY_INVALID</summary>
            <p>
              They do until you import the gateway’s CA, {addresses.gateway_ca ?? ''}, as an authority: in Chrome under
              chrome://certificate-manager, in Firefox under Settings, Certificates. For a look, choose “Advanced”, then
              “Proceed”.
            </p>
          </details>
        </div>
      )}
    </section>
  );
}

/** Brief outages need no diagnosis. */
const PATIENCE_MS = 3_000;
const MAX_SHOWN = 3;

/**
 * Runs the diagnosis and shows what it advises.
 *
 * @param known what the page says already
 */
function Remedy({ known }: { known: string | null }): JSX.Element | null {
  const findings = useSignal<readonly FindingView[] | null>(null);
  useEffect(() => {
    const timer = window.setTimeout(() => {
      void runDoctor().then(
        (found) => {
          findings.value = found;
        },
        () => {
          findings.value = [];
        },
      );
    }, PATIENCE_MS);
    return () => window.clearTimeout(timer);
  }, []);

  if (findings.value === null) return <p class="remedy hint">Looking for the cause…</p>;
  const problems = findings.value.filter(({ status }) => status === 'failed').slice(0, MAX_SHOWN);
  if (problems.length === 0) return null;
  return (
    <div class="remedy">
      <h3>What to do</h3>
      <ul>
        {problems.map(({ check, detail, advice }) => (
          <li key={check + detail}>
            {!(known !== null && advice !== null && detail.includes(known)) && <p>{detail}</p>}
            {advice !== null && <p class="advice">{advice}</p>}
          </li>
        ))}
      </ul>
    </div>
  );
}
