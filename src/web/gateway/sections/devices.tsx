import type { JSX } from 'preact';
import type { Device } from '../../../management/resources/device.ts';
import { Address } from '../../ui/address.tsx';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { unicodeForm } from '../../ui/unicode-form.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations } from '../annotations.ts';
import { Ago, For, Named } from '../cells.tsx';
import { confirmed, removal } from '../confirm-dialog.tsx';
import { commonFacts, linesOfPairs, optional, Pairs } from '../facts.tsx';
import { fleet } from '../fleet-strings.ts';
import { pairsOf } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import { ItemLink } from '../item-link.tsx';
import type { Action, Section } from '../section.ts';
import { api } from '../session.ts';
import { gateway } from '../strings.ts';
import { TunnelTable } from '../tunnel-table.tsx';

const text = fleet.devices;
export const DEVICE_TONES: Record<keyof typeof text.status, Tone> = {
  pending: 'warning',
  revoked: 'neutral',
  online: 'good',
  offline: 'bad',
  never: 'warning',
};

/** The URL of a name of this gateway; guessed from the port of the page's own address. */
const urlAt = (host: string): string => `https://${host}${window.location.port && `:${window.location.port}`}`;

/** What the dashboard calls the state of a device. */
export function stateOf({ status, online_since, last_seen_at }: Device): keyof typeof text.status {
  if (status !== 'enrolled') return status;
  if (online_since !== null) return 'online';
  return last_seen_at === null ? 'never' : 'offline';
}

export const devicesSection: Section<Device> = {
  name: 'devices',
  path: '/devices',
  listKey: 'devices',
  isLive: true,
  tables: ['devices'],
  nameOf: ({ name }) => name,
  columns: [
    { head: text.name, cell: ({ name, site }) => <Named name={name} below={`*.${site}`} unicode={site} /> },
    { head: text.state, cell: (device) => <State device={device} /> },
    { head: text.since, cell: (device) => <Since device={device} /> },
    { head: text.version, cell: ({ agent_version }) => agent_version || gateway.list.none },
    { head: text.address, cell: ({ ip }) => ip ?? gateway.list.none },
    { head: text.tunnels, cell: ({ tunnels }) => tunnels.length },
  ],
  searchText: (device) =>
    [
      device.id,
      device.name,
      device.site,
      unicodeForm(device.site),
      device.domain,
      device.ip,
      device.agent_version,
      text.status[stateOf(device)],
      device.description,
      linesOfPairs(device.labels),
    ].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: null,
  facts: (device) => [
    { label: text.state, value: <State device={device} /> },
    device.online_since === null
      ? { label: text.lastSeen, value: device.last_seen_at ? <Ago moment={device.last_seen_at} /> : text.never }
      : { label: text.online, value: <For moment={device.online_since} /> },
    { label: text.site, value: `*.${device.site}` },
    { label: text.domain, value: <Address url={urlAt(device.domain)} /> },
    ...optional(text.version, device.agent_version),
    ...optional(text.address, device.ip),
    ...optional(text.labels, Object.keys(device.labels).length > 0 && <Pairs of={device.labels} />),
    ...optional(text.names, device.plain_names.map((label) => `${label}.${device.site}`).join(', ')),
    ...optional(text.ports, device.tcp_ports),
    { label: gateway.form.owner, value: <ItemLink section="bot-users" id={device.owner_id} /> },
    ...optional(
      fleet.agents.authtoken,
      device.credential && <ItemLink section="authtokens" id={device.credential.id} />,
    ),
    ...commonFacts(device),
  ],
  more: (device) => <More device={device} />,
  actions: actionsOf,
};

function actionsOf(device: Device): Action[] {
  const { id, name, site, status, tunnels } = device;
  const path = `/devices/${id}`;
  const stops = tunnels.map((tunnel) => text.revoke.tunnel(tunnel.public_url ?? tunnel.forwards_to));
  const approve = confirmed({
    name: 'approve',
    label: text.approve.label,
    title: text.approve.title(name),
    effects: [text.approve.effect(`*.${site}`)],
    submit: text.approve.label,
    isDestructive: false,
    run: () => api('POST', `${path}/approve`),
  });
  const edit = edited({
    name: 'edit',
    label: gateway.item.edit,
    method: 'PATCH',
    path,
    form: {
      label: text.edit,
      fields: [...ANNOTATION_FIELDS, { name: 'labels', label: text.labels, hint: text.labelsHint, kind: 'lines' }],
      values: { ...annotationValues(device), labels: linesOfPairs(device.labels) },
      body: ({ labels, ...values }) => ({ ...changedAnnotations(values), labels: pairsOf(labels) }),
    },
  });
  const revoke = confirmed({
    name: 'revoke',
    label: text.revoke.label,
    title: text.revoke.title(name),
    effects: [text.revoke.session, ...stops],
    submit: text.revoke.label,
    isDestructive: true,
    run: () => api('POST', `${path}/revoke`),
  });
  const remove = removal({
    title: text.remove.title(name),
    effects: [text.remove.session, ...stops],
    submit: text.remove.submit,
    path,
  });
  return [...(status === 'pending' ? [approve] : []), edit, ...(status === 'revoked' ? [] : [revoke]), remove];
}

function State({ device }: { device: Device }): JSX.Element {
  const state = stateOf(device);
  return <Badge tone={DEVICE_TONES[state]}>{text.status[state]}</Badge>;
}

function Since({ device: { online_since, last_seen_at, created_at } }: { device: Device }): JSX.Element {
  return online_since === null ? <Ago moment={last_seen_at ?? created_at} /> : <For moment={online_since} />;
}

function More({ device: { tunnels, history } }: { device: Device }): JSX.Element {
  return (
    <>
      <TunnelTable tunnels={tunnels.map((each, at) => ({ ...each, id: `${at}` }))} />
      <section class="part" aria-labelledby="history">
        <h3 id="history">{text.history}</h3>
        <ul class="plain">
          {history.toReversed().map(({ at, what, by }) => (
            <li key={`${at}${what}`}>
              {text.event(what, by)}
              <span class="below">
                <Ago moment={at} />
              </span>
            </li>
          ))}
        </ul>
      </section>
    </>
  );
}
