import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { FeedTunnel } from '../../agent/api/page/page-routes.ts';
import { accessText, isInternal } from '../ui/access-form.tsx';
import { AddressView } from '../ui/address.tsx';
import { Button, ButtonLink, CopyButton } from '../ui/button.tsx';
import { byteSize } from '../ui/byte-size.ts';
import { TextField } from '../ui/field.tsx';
import { ArrowIcon, LinkIcon, ListIcon, PlusIcon, QrIcon, ShieldIcon, TrashIcon } from '../ui/icons.tsx';
import { Badge, EmptyState, type Tone } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { ago, spanSince } from '../ui/time-span.ts';
import { errorText } from './verdict.ts';

/** More tunnels get a filter. */
const FEW = 8;
/** More tunnels are shown on demand. */
const PAGE = 50;

/** All tunnels; those with problems come first, and of both kinds the newest. */
export function TunnelCards({ tunnels }: { tunnels: readonly FeedTunnel[] }): JSX.Element {
  const filter = useSignal('');
  const shown = useSignal(PAGE);
  const wanted = filter.value.trim().toLowerCase();
  const matching = tunnels.filter(({ url, forwards_to }) => `${url} ${forwards_to}`.toLowerCase().includes(wanted));
  const sorted = matching
    .toReversed()
    .toSorted((a, b) => Number(a.status === 'online') - Number(b.status === 'online'));
  return (
    <section aria-labelledby="tunnels">
      <div class="section-head">
        <h2 id="tunnels">Tunnels</h2>
        {tunnels.length > 0 && <StartLink />}
      </div>
      {tunnels.length > FEW && (
        <TextField
          label="Filter tunnels"
          hiddenLabel
          type="search"
          placeholder="Filter tunnels"
          value={filter.value}
          onInput={(value) => {
            filter.value = value;
            shown.value = PAGE;
          }}
        />
      )}
      {tunnels.length === 0 && (
        <EmptyState title="No tunnels yet">
          <p>A tunnel gives a program on this device, or in its network, a public URL.</p>
          <StartLink />
        </EmptyState>
      )}
      {tunnels.length > 0 && matching.length === 0 && <p class="hint">No tunnel matches “{filter.value}”.</p>}
      <ul class="tunnels">
        {sorted.slice(0, shown.value).map((tunnel) => (
          <TunnelCard key={tunnel.id} tunnel={tunnel} />
        ))}
      </ul>
      {sorted.length > shown.value && (
        <Button
          onClick={() => {
            shown.value += PAGE;
          }}
        >
          Show {Math.min(PAGE, sorted.length - shown.value)} more
        </Button>
      )}
    </section>
  );
}

function StartLink(): JSX.Element {
  return (
    <ButtonLink kind="primary" href={linkTo('start')}>
      <PlusIcon />
      Start tunnel
    </ButtonLink>
  );
}

const STATES = {
  online: 'Online',
  degraded: 'Upstream down',
  connecting: 'Connecting',
  offline: 'Offline',
  failed: 'Failed',
} as const;
const UPSTREAM_STATES = {
  answers: 'answers',
  refused: 'refuses connections',
  unreachable: 'does not answer',
  tls_failed: 'TLS fails',
  wrong_protocol: 'sends no valid HTTP',
  hangs: 'hangs: keeps connections open after clients have left',
  unknown: 'not checked yet',
} as const;

const TONES: Record<FeedTunnel['status'], Tone> = {
  online: 'good',
  degraded: 'warning',
  connecting: 'busy',
  offline: 'warning',
  failed: 'bad',
};

/** A tunnel: where it leads, how it is, and what can be done with it. */
function TunnelCard({ tunnel }: { tunnel: FeedTunnel }): JSX.Element {
  const { id, url, url_part: name, status, since, forwards_to: upstream, last_error: error } = tunnel;
  const policyText = tunnel.own_policy ? 'own policy' : 'default policies';
  return (
    <li class="card tunnel">
      <div class="tunnel-head">
        <h3>{name}</h3>
        <Badge tone={TONES[status]}>
          {STATES[status]} <span class="since">for {spanSince(since)}</span>
        </Badge>
      </div>
      <AddressView url={url} />
      {tunnel.domain_url && <AddressView url={tunnel.domain_url} />}
      <p class="upstream">
        <ArrowIcon />
        <span class="visually-hidden">Forwards to</span> <code>{upstream}</code>
        <span>{UPSTREAM_STATES[tunnel.upstream.state]}</span>
      </p>
      <p class="hint">{[trafficText(tunnel), policyText].join(' · ')}</p>
      <p class="access">
        <ShieldIcon />
        <span class="hint">Who may come in:</span>{' '}
        {tunnel.protocol === 'http' ? (
          <a href={linkTo('tunnels', id, 'access')}>{accessText(tunnel.access, url)}</a>
        ) : (
          accessText(tunnel.access, url)
        )}
      </p>
      {error && status !== 'online' && (
        <p class="reason">
          {errorText(error)} {status === 'failed' && 'The agent keeps trying.'}
        </p>
      )}
      {(tunnel.policy_warnings ?? []).map((warning) => (
        <p key={warning} class="reason">
          Policy: {warning}
        </p>
      ))}
      <div class="actions">
        <CopyButton text={url} what={url} />
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'qr')} label={`QR code: ${name}`}>
          <QrIcon />
        </ButtonLink>
        {tunnel.protocol === 'http' && (
          <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'traffic')} label={`Traffic: ${name}`}>
            <ListIcon />
            Traffic
          </ButtonLink>
        )}
        {url.startsWith('https:') && !isInternal(url) && (
          <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'share')} label={`Share: ${name}`}>
            <LinkIcon />
            Share
          </ButtonLink>
        )}
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'change')} label={`Change: ${name}`}>
          <ArrowIcon />
          Change
        </ButtonLink>
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'policy')} label={`Policy: ${name}`}>
          <ShieldIcon />
          Policy
        </ButtonLink>
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'delete')} label={`Delete: ${name}`}>
          <TrashIcon />
          Delete
        </ButtonLink>
      </div>
    </li>
  );
}

/** What passed since the agent started. */
function trafficText({ protocol, traffic }: FeedTunnel): string {
  if (traffic === null) return 'Traffic bypasses the agent, so it is not counted';
  // Of other protocols, the agent counts connections as requests.
  const { requests: count, bytes_in: received, bytes_out: sent, last_at: last } = traffic;
  const isHttp = protocol === 'http';
  if (count === 0) return isHttp ? 'No requests yet' : 'No connections yet';
  return [
    isHttp
      ? count === 1
        ? '1 request'
        : `${count.toLocaleString('en')} requests`
      : count === 1
        ? '1 connection'
        : `${count.toLocaleString('en')} connections`,
    `${byteSize(received)} in, ${byteSize(sent)} out`,
    ...(last === null ? [] : [`last ${ago(last)}`]),
  ].join(' · ');
}
