import type { JSX } from 'preact';
import type { FeedSnapshot } from '../../agent/api/page/feed.ts';
import { device } from '../strings.ts';
import { Address } from '../ui/address.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { spanSince } from '../ui/time-span.ts';
import type { DeviceModel } from './model.ts';
import { Remedy } from './remedy.tsx';
import { verdictOn } from './verdict.ts';

const text = device.state;

/** The device's state, large, with what to do about it. */
export function StateCard({ model, status }: { model: DeviceModel; status: FeedSnapshot['status'] }): JSX.Element {
  const verdict = verdictOn(status, model.connection.state.value, spanSince);
  const { session, tunnels, remote_api: own, addresses } = status;
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
          <strong>{text.reason}:</strong> {verdict.reason}
        </p>
      )}
      {verdict.needsRemedy && <Remedy key={verdict.title} known={session.last_error?.message ?? null} />}
      <dl class="facts">
        <div>
          <dt>{text.tunnels}</dt>
          <dd>{text.ofTotal(tunnels.online, tunnels.total)}</dd>
        </div>
        <div>
          <dt>{text.uptime}</dt>
          <dd>{spanSince(model.started.value)}</dd>
        </div>
        <div>
          <dt>{text.reconnects}</dt>
          <dd>{session.reconnects}</dd>
        </div>
      </dl>
      {own && (
        <div class="with-action">
          <span class="hint">{text.ownDomain}</span>
          <Address url={own.url} />
          <CopyButton text={own.url} what={text.ownDomain} />
        </div>
      )}
      {'gateway_https' in addresses && (
        <div class="hint">
          <p>{text.embedded}</p>
          <details>
            <summary>{text.untrusted}</summary>
            <p>{text.trust(addresses.gateway_ca ?? '')}</p>
          </details>
        </div>
      )}
    </section>
  );
}
