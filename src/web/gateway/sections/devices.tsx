import type { JSX } from 'preact';
import type { Device } from '../../../management/resources/device.ts';
import { Dialog } from '../../ui/dialog.tsx';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { Ago, For, Named } from '../cells.tsx';
import { confirmed } from '../confirm-dialog.tsx';
import type { Action, Section } from '../section.ts';
import { api } from '../session.ts';
import { gateway } from '../strings.ts';

const text = gateway.devices;
const TONES: Record<keyof typeof text.status, Tone> = {
  pending: 'warning',
  revoked: 'neutral',
  online: 'good',
  offline: 'bad',
  never: 'warning',
};

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
  columns: [
    { head: text.name, cell: ({ name, site }) => <Named name={name} below={`*.${site}`} /> },
    { head: text.state, cell: (device) => <State device={device} /> },
    { head: text.since, cell: (device) => <Since device={device} /> },
    { head: text.version, cell: ({ agent_version }) => agent_version || gateway.list.none },
    { head: text.address, cell: ({ ip }) => ip ?? gateway.list.none },
    { head: text.tunnels, cell: ({ tunnels }) => tunnels.length },
  ],
  searchText: (device) =>
    [device.name, device.site, device.ip, device.agent_version, text.status[stateOf(device)], device.description].join(
      ' ',
    ),
  empty: { title: text.emptyTitle, text: text.empty, command: text.command },
  actions: actionsOf,
  create: null,
};

function actionsOf(device: Device): Action[] {
  const { id, name, site, status, tunnels } = device;
  const list: Action = {
    name: 'tunnels',
    label: text.tunnelsOf.label,
    dialog: (close) => <Tunnels device={device} onClose={close} />,
  };
  const approve = confirmed({
    name: 'approve',
    label: text.approve.label,
    title: text.approve.title(name),
    effects: [text.approve.effect(`*.${site}`)],
    submit: text.approve.label,
    isDestructive: false,
    run: () => api('POST', `/devices/${id}/approve`),
  });
  const revoke = confirmed({
    name: 'revoke',
    label: text.revoke.label,
    title: text.revoke.title(name),
    effects: [text.revoke.session, ...tunnels.map((tunnel) => text.revoke.tunnel(tunnel.public_url ?? ''))],
    submit: text.revoke.label,
    isDestructive: true,
    run: () => api('POST', `/devices/${id}/revoke`),
  });
  return [
    ...(tunnels.length > 0 ? [list] : []),
    ...(status === 'pending' ? [approve] : []),
    ...(status === 'revoked' ? [] : [revoke]),
  ];
}

function State({ device }: { device: Device }): JSX.Element {
  const state = stateOf(device);
  return <Badge tone={TONES[state]}>{text.status[state]}</Badge>;
}

function Since({ device: { online_since, last_seen_at, created_at } }: { device: Device }): JSX.Element {
  return online_since === null ? <Ago moment={last_seen_at ?? created_at} /> : <For moment={online_since} />;
}

function Tunnels({ device: { name, tunnels }, onClose }: { device: Device; onClose: () => void }): JSX.Element {
  return (
    <Dialog title={text.tunnelsOf.title(name)} onClose={onClose}>
      <ul class="plain">
        {tunnels.map(({ public_url, forwards_to }) => (
          <li key={`${public_url}${forwards_to}`}>
            <span class="url">{public_url}</span>
            <span class="below">
              {text.tunnelsOf.forwardsTo} <code>{forwards_to}</code>
            </span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
