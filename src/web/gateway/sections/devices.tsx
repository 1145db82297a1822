import type { JSX } from 'preact';
import type { Device } from '../../../management/resources/device.ts';
import { Address } from '../../ui/address.tsx';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { unicodeForm } from '../../ui/unicode-form.ts';
import { confirmed } from '../action-dialogs.tsx';
import { Ago, For, linesOfPairs, Named, optional, Pairs } from '../cells.tsx';
import { pairsOf } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { ANNOTATIONS, resource } from '../resource.tsx';
import { api } from '../session.ts';
import { TunnelTable } from './agents.tsx';

export const DEVICE_STATES = {
  pending: 'Waits for approval',
  revoked: 'Revoked',
  online: 'Online',
  offline: 'Offline',
  never: 'Never online',
} as const;

export const DEVICE_TONES: Record<keyof typeof DEVICE_STATES, Tone> = {
  pending: 'warning',
  revoked: 'neutral',
  online: 'good',
  offline: 'bad',
  never: 'warning',
};

/** The URL of a name of this gateway; guessed from the port of the page's own address. */
const urlAt = (host: string): string => `https://${host}${window.location.port && `:${window.location.port}`}`;

/** What the dashboard calls the state of a device. */
export function stateOf({ status, online_since, last_seen_at }: Device): keyof typeof DEVICE_STATES {
  if (status !== 'enrolled') return status;
  if (online_since !== null) return 'online';
  return last_seen_at === null ? 'never' : 'offline';
}

export const devicesSection = resource<Device>({
  name: 'devices',
  path: '/devices',
  online: ['cr_'],
  changesWith: ({ credential }) => [credential?.id],
  nameOf: ({ name }) => name,
  columns: [
    { head: 'Device', cell: ({ name, site }) => <Named name={name} below={`*.${site}`} unicode={site} /> },
    { head: 'State', cell: (device) => <State device={device} /> },
    { head: 'Since', cell: (device) => <Since device={device} /> },
    { head: 'Version', cell: ({ agent_version }) => agent_version || '–' },
    { head: 'Address', cell: ({ ip }) => ip ?? '–' },
    { head: 'Tunnels', cell: ({ tunnels }) => tunnels.length },
  ],
  searchTexts: (device) => [
    device.id,
    device.name,
    device.site,
    unicodeForm(device.site),
    device.domain,
    device.ip,
    device.agent_version,
    DEVICE_STATES[stateOf(device)],
    device.description,
    linesOfPairs(device.labels),
  ],
  empty: { title: 'No devices yet', text: 'Add a site: it ends with a code with which devices join.' },
  facts: (device) => [
    { label: 'State', value: <State device={device} /> },
    device.online_since === null
      ? { label: 'Last seen', value: device.last_seen_at ? <Ago moment={device.last_seen_at} /> : 'never' }
      : { label: 'Online for', value: <For moment={device.online_since} /> },
    { label: 'Site', value: `*.${device.site}` },
    { label: 'Its API', value: <Address url={urlAt(device.domain)} /> },
    ...optional('Version', device.agent_version),
    ...optional('Address', device.ip),
    ...optional('Labels', Object.keys(device.labels).length > 0 && <Pairs of={device.labels} />),
    ...optional('Names at the site', device.plain_names.map((label) => `${label}.${device.site}`).join(', ')),
    ...optional('TCP ports', device.tcp_ports),
    { label: 'Bot user', value: <ItemLink section="bot-users" id={device.owner_id} /> },
    ...optional('Authtoken', device.credential && <ItemLink section="authtokens" id={device.credential.id} />),
  ],
  more: (device) => <More device={device} />,
  edit: {
    label: 'Edit device',
    fields: [
      ...ANNOTATIONS,
      { name: 'labels', label: 'Labels', hint: 'Optional, name=value on each line.', kind: 'lines' },
    ],
    values: ({ labels }) => ({ labels: linesOfPairs(labels) }),
    body: ({ labels }) => ({ labels: pairsOf(labels) }),
  },
  remove: (device) => ({
    effects: [
      'Its session ends, and its name becomes free. With a valid code, it can join again.',
      ...tunnelsStopped(device),
    ],
    submit: 'Delete device',
  }),
  actions: (device, { edit, remove }) => {
    const { id, name, site, status } = device;
    const approve = confirmed({
      name: 'approve',
      label: 'Approve',
      title: `Approve ${name}?`,
      effects: [`The device gets an authtoken for its own names below *.${site}.`],
      submit: 'Approve',
      isDestructive: false,
      run: () => api('POST', `/devices/${id}/approve`),
    });
    const revoke = confirmed({
      name: 'revoke',
      label: 'Revoke',
      title: `Revoke ${name}?`,
      effects: ['Its session ends, and it cannot join again.', ...tunnelsStopped(device)],
      submit: 'Revoke',
      isDestructive: true,
      run: () => api('POST', `/devices/${id}/revoke`),
    });
    return [...(status === 'pending' ? [approve] : []), ...edit, ...(status === 'revoked' ? [] : [revoke]), ...remove];
  },
});

function tunnelsStopped({ tunnels }: Device): string[] {
  return tunnels.map(({ public_url, forwards_to }) => `${public_url ?? forwards_to} goes offline.`);
}

function State({ device }: { device: Device }): JSX.Element {
  const state = stateOf(device);
  return <Badge tone={DEVICE_TONES[state]}>{DEVICE_STATES[state]}</Badge>;
}

function Since({ device: { online_since, last_seen_at, created_at } }: { device: Device }): JSX.Element {
  return online_since === null ? <Ago moment={last_seen_at ?? created_at} /> : <For moment={online_since} />;
}

function More({ device: { tunnels, history } }: { device: Device }): JSX.Element {
  return (
    <>
      <TunnelTable tunnels={tunnels.map((each, at) => ({ ...each, id: `${at}` }))} />
      <section class="part" aria-labelledby="history">
        <h3 id="history">History</h3>
        <ul class="plain">
          {history.toReversed().map(({ at, what, by }) => (
            <li key={`${at}${what}`}>
              {what} by {by}
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
