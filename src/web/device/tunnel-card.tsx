import type { JSX } from 'preact';
import type { FeedTunnel } from '../../agent/api/page/feed.ts';
import { device, shared } from '../strings.ts';
import { Address } from '../ui/address.tsx';
import { ButtonLink } from '../ui/button.tsx';
import { byteSize } from '../ui/byte-size.ts';
import { CopyButton } from '../ui/copy-button.tsx';
import { ArrowIcon, ListIcon, QrIcon, ShieldIcon, TrashIcon } from '../ui/icons.tsx';
import { Badge, type Tone } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { ago, spanSince } from '../ui/time-span.ts';
import { errorText } from './verdict.ts';

const text = device.tunnels;
const TONES: Record<FeedTunnel['status'], Tone> = {
  online: 'good',
  degraded: 'warning',
  connecting: 'busy',
  offline: 'warning',
  failed: 'bad',
};

/** A tunnel: where it leads, how it is, and what can be done with it. */
export function TunnelCard({ tunnel }: { tunnel: FeedTunnel }): JSX.Element {
  const { id, url, url_part: name, status, since, forwards_to: upstream, last_error: error } = tunnel;
  const policyText = tunnel.own_policy ? text.ownPolicy : text.defaultPolicies;
  return (
    <li class="card tunnel">
      <div class="tunnel-head">
        <h3>{name}</h3>
        <Badge tone={TONES[status]}>
          {text.status[status]} <span class="since">{text.since(spanSince(since))}</span>
        </Badge>
      </div>
      <Address url={url} />
      <p class="upstream">
        <ArrowIcon />
        <span class="visually-hidden">{text.forwardsTo}</span> <code>{upstream}</code>
        <span>{text.upstream[tunnel.upstream.state]}</span>
      </p>
      <p class="hint">{[trafficText(tunnel), policyText].join(' · ')}</p>
      {error && status !== 'online' && (
        <p class="reason">
          {errorText(error)} {status === 'failed' && text.retrying}
        </p>
      )}
      <div class="actions">
        <CopyButton text={url} what={url} />
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'qr')} label={shared.qrTitle(name)}>
          <QrIcon />
        </ButtonLink>
        {tunnel.protocol === 'http' && (
          <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'traffic')} label={`${text.traffic}: ${name}`}>
            <ListIcon />
            {text.traffic}
          </ButtonLink>
        )}
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'change')} label={`${text.change}: ${name}`}>
          <ArrowIcon />
          {text.change}
        </ButtonLink>
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'policy')} label={`${text.policy}: ${name}`}>
          <ShieldIcon />
          {text.policy}
        </ButtonLink>
        <ButtonLink kind="quiet" href={linkTo('tunnels', id, 'delete')} label={`${text.delete}: ${name}`}>
          <TrashIcon />
          {text.delete}
        </ButtonLink>
      </div>
    </li>
  );
}

/** What passed since the agent started. */
function trafficText({ protocol, traffic }: FeedTunnel): string {
  if (traffic === null) return text.notCounted;
  // Of other protocols, the agent counts connections as requests.
  const { requests: count, bytes_in: received, bytes_out: sent, last_at: last } = traffic;
  const isHttp = protocol === 'http';
  if (count === 0) return isHttp ? text.noRequests : text.noConnections;
  return [
    isHttp ? text.requests(count) : text.connections(count),
    text.bytes(byteSize(received), byteSize(sent)),
    ...(last === null ? [] : [text.last(ago(last))]),
  ].join(' · ');
}
