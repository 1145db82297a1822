import type { JSX } from 'preact';
import { presenceOf } from '../../../management/device-presence.ts';
import type { Device, ReportedBudget } from '../../../management/resources/device.ts';
import type { EnrolmentKey } from '../../../management/resources/enrolment.ts';
import { AddressView } from '../../ui/address.tsx';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { linkTo } from '../../ui/router.ts';
import { present } from '../../ui/time-span.ts';
import { confirmed } from '../action-dialogs.tsx';
import { Ago, dateOf, For, linesOfPairs, Named, optional, Pairs } from '../cells.tsx';
import { LABEL_FILTER, SITE_FILTER, stateChoice, VERSION_FILTER } from '../filters.ts';
import { type FormField, type FormValues, pairsOf, type ShownOnce } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { LastDayLine } from '../last-day.tsx';
import { ANNOTATIONS, DESCRIPTION_FIELD, memberColumns, memberFacts, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import { api } from '../session.ts';
import { TunnelTable } from './agents-section.tsx';
import { DEVICE_BULK } from './bulk-actions-section.tsx';

const APPROVAL_HINT = 'Anyone with the code can join until it expires.';
const usedBy = (uses: number, most: number | null) => (most === null ? `${uses} joined` : `${uses} of ${most} joined`);
const EFFECT = 'No further device can join with it. Devices that have joined stay.';

const DAY_MS = 86_400_000;
const OPTIONAL = { min: 1, canBeEmpty: true };

/** The fields of a new invite, without its site. */
export const INVITE_FIELDS: readonly FormField[] = [
  {
    name: 'max_uses',
    label: 'Number of devices',
    hint: 'How many devices can join with it. Empty: any number.',
    kind: 'number',
    bounds: { ...OPTIONAL, max: 1_000_000 },
  },
  {
    name: 'days',
    member: 'expires_at',
    label: 'Valid for days',
    hint: 'Empty: it does not expire.',
    kind: 'number',
    bounds: { ...OPTIONAL, max: 36_500 },
  },
  {
    name: 'approval',
    label: 'New devices',
    hint: APPROVAL_HINT,
    kind: 'choice',
    options: [
      { value: 'no', label: 'Join at once', hint: APPROVAL_HINT },
      { value: 'yes', label: 'Wait for approval' },
    ],
  },
  {
    name: 'names',
    label: 'Names of tunnels',
    kind: 'choice',
    options: [
      {
        value: 'any',
        label: 'Any free name of the site',
        hint: 'Such as camera.site-a.example.com: the first device that asks gets it.',
      },
      { value: 'own', label: 'Own names only', hint: 'Such as camera-cabinet-7.site-a.example.com.' },
    ],
  },
];

/** What they show at first: as `device-agent gateway invite` does, one device within a week. */
export const INVITE_VALUES: FormValues = { max_uses: '1', days: '7' };

/** The body that creates an invite. */
export function inviteBody({ site = '', max_uses = '', days = '', approval, names }: FormValues): object {
  return {
    site: site.trim(),
    ...(max_uses.trim() !== '' && { max_uses: Number(max_uses) }),
    ...(days.trim() !== '' && { expires_at: new Date(Date.now() + Number(days) * DAY_MS).toISOString() }),
    ...(approval === 'yes' && { needs_approval: true }),
    ...(names === 'own' && { own_names_only: true }),
  };
}

/** What devices join with, from the answer to the creation of an invite. */
export function joinCommand({ code }: Readonly<Record<string, unknown>>): ShownOnce | null {
  return typeof code === 'string' ? { text: `echo ${code} | sudo device-agent join -`, qr: code } : null;
}

function keyState({ revoked_at, expires_at, max_uses, uses }: EnrolmentKey): { tone: Tone; label: string } {
  if (revoked_at !== null) return { tone: 'neutral', label: 'Revoked' };
  if (expires_at !== null && new Date(expires_at).getTime() <= present.value)
    return { tone: 'neutral', label: 'Expired' };
  if (max_uses !== null && uses >= max_uses) return { tone: 'neutral', label: 'Used up' };
  return { tone: 'good', label: 'Valid' };
}

const keyBadge = (key: EnrolmentKey) => <Badge tone={keyState(key).tone}>{keyState(key).label}</Badge>;
const keyName = ({ site }: EnrolmentKey): string => `*.${site}`;
const expiry = ({ expires_at }: EnrolmentKey) => (expires_at === null ? 'never' : dateOf(expires_at));

export const invitesSection = resource<EnrolmentKey>(RESOURCES.enrolmentKeys, {
  name: 'invites',
  title: 'Invites',
  nameOf: keyName,
  columns: [
    {
      head: 'Site',
      sort: 'site',
      cell: (key) => <Named name={keyName(key)} below={key.description} unicode={key.site} />,
    },
    { head: 'State', sort: 'state', cell: keyBadge },
    { head: 'Number of devices', sort: 'uses', cell: ({ uses, max_uses }) => usedBy(uses, max_uses) },
    { head: 'Expires', sort: 'expires_at', cell: expiry },
  ],
  filters: [
    stateChoice({ valid: 'Valid', expired: 'Expired', used_up: 'Used up', revoked: 'Revoked' }),
    SITE_FILTER,
    LABEL_FILTER,
  ],
  empty: {
    title: 'No invites yet',
    text: 'With the code of an invite, devices join a site. One code serves many devices.',
  },
  create: {
    label: 'Create invite',
    fields: [
      {
        name: 'site',
        label: 'Site',
        hint: 'The wildcard domain of the site: *.site-a.example.com. It is reserved if it is not yet.',
        kind: 'text',
        required: 'Enter the domain of the site, such as *.site-a.example.com.',
      },
      ...INVITE_FIELDS,
      DESCRIPTION_FIELD,
    ],
    values: INVITE_VALUES,
    body: inviteBody,
    once: joinCommand,
  },
  facts: (key) => [
    { label: 'State', value: keyBadge(key) },
    { label: 'Number of devices', value: usedBy(key.uses, key.max_uses) },
    { label: 'Expires', value: expiry(key) },
    { label: 'New devices', value: key.needs_approval ? 'Wait for approval' : 'Join at once' },
    { label: 'Names of tunnels', value: key.own_names_only ? 'Own names only' : 'Any free name of the site' },
    { label: 'Bot user', value: <ItemLink id={key.owner_id} /> },
    ...optional('Internal endpoints', key.internal_names && `*-<name>.${key.site}.internal`),
    ...optional('TCP ports', key.tcp_ports),
    ...optional('Labels', Object.keys(key.labels).length > 0 && <Pairs of={key.labels} />),
  ],
  remove: () => ({ title: 'Delete this invite?', effects: [EFFECT], submit: 'Delete invite' }),
  actions: ({ id, revoked_at }, { remove }) => {
    const revoke = confirmed({
      name: 'revoke',
      label: 'Revoke',
      title: 'Revoke this invite?',
      effects: [EFFECT],
      submit: 'Revoke invite',
      isDestructive: true,
      run: () => api('PATCH', `/enrolment_keys/${id}`, { revoked: true }),
    });
    return revoked_at === null ? [revoke, ...remove] : remove;
  },
});

export const DEVICE_STATES = {
  pending: 'Waits for approval',
  revoked: 'Revoked',
  online: 'Online',
  offline: 'Offline',
  away: 'Offline by plan',
  never: 'Never online',
} as const;

export const DEVICE_TONES: Record<keyof typeof DEVICE_STATES, Tone> = {
  pending: 'warning',
  revoked: 'neutral',
  online: 'good',
  offline: 'bad',
  away: 'neutral',
  never: 'warning',
};

/** The URL of a name of this gateway; guessed from the port of the page's own address. */
const urlAt = (host: string): string => `https://${host}${window.location.port && `:${window.location.port}`}`;

/** What the dashboard calls the state of a device. */
export function stateOf({ status, ...device }: Device): keyof typeof DEVICE_STATES {
  return status === 'enrolled' ? presenceOf(device, present.value) : status;
}

function budgetText({ used_percent, limit_bytes, ends_at, state, back_at }: ReportedBudget): string {
  const limit = limit_bytes === null ? '' : ` of ${limit_bytes / 1e6} MB`;
  const until = ends_at === null ? '' : ` until ${dateOf(ends_at)}`;
  const paused = state === 'paused' ? '; its tunnels answer 503' : '';
  return `${used_percent} %${limit} used${until}${back_at === null ? paused : `; online again at ${dateOf(back_at)}`}`;
}

const LINKS = { default: 'not metered', metered: 'metered' } as const;

export const devicesSection = resource<Device>(RESOURCES.devices, {
  name: 'devices',
  title: 'Devices',
  online: ['cr_'],
  changesWith: ({ credential }) => [credential?.id],
  nameOf: ({ name }) => name,
  columns: [
    {
      head: 'Device',
      sort: 'name',
      cell: ({ name, site }) => <Named name={name} below={`*.${site}`} unicode={site} />,
    },
    { head: 'State', sort: 'state', cell: (device) => <State device={device} /> },
    { head: 'Since', sort: 'last_seen_at', cell: (device) => <Since device={device} /> },
    ...memberColumns<Device>(RESOURCES.devices, ['agent_version']),
    { head: 'Tunnels', cell: ({ tunnels }) => tunnels.length },
    { head: 'Last 24 h', cell: ({ id }) => <LastDayLine id={id} /> },
  ],
  bulk: { choices: DEVICE_BULK, noun: ['device', 'devices'] },
  filters: [stateChoice(DEVICE_STATES), SITE_FILTER, LABEL_FILTER, VERSION_FILTER],
  empty: { title: 'No devices yet', text: 'Add a site: it ends with a code with which devices join.' },
  facts: (device) => [
    { label: 'State', value: <State device={device} /> },
    device.online_since === null
      ? { label: 'Last seen', value: device.last_seen_at ? <Ago moment={device.last_seen_at} /> : 'never' }
      : { label: 'Online for', value: <For moment={device.online_since} /> },
    { label: 'Site', value: `*.${device.site}` },
    { label: 'Its API', value: <AddressView url={urlAt(device.domain)} /> },
    ...memberFacts(device, RESOURCES.devices, ['agent_version']),
    ...optional('Link', device.link && LINKS[device.link]),
    ...optional('Data budget', device.data_budget && budgetText(device.data_budget)),
    ...optional('Labels', Object.keys(device.labels).length > 0 && <Pairs of={device.labels} />),
    ...optional('Names at the site', device.plain_names.map((label) => `${label}.${device.site}`).join(', ')),
    ...optional('Internal endpoints', device.internal_names && `*-${device.name}.${device.site}.internal`),
    ...optional('TCP ports', device.tcp_ports),
    { label: 'Bot user', value: <ItemLink id={device.owner_id} /> },
    ...optional('Authtoken', device.credential && <ItemLink id={device.credential.id} />),
  ],
  historyOf: ({ id }) => linkTo('history', 'devices', id),
  more: (device) => <More device={device} />,
  edit: {
    label: 'Edit device',
    fields: [
      ...ANNOTATIONS,
      { name: 'labels', label: 'Labels', hint: 'Optional, name=value on each line.', kind: 'lines' },
      {
        name: 'link_setting',
        label: 'Link',
        kind: 'choice',
        options: [
          { value: 'device', label: 'As the device says', hint: 'AGENT_LINK in its settings.' },
          { value: 'metered', label: 'Metered', hint: 'Such as a SIM card: less data. Its agent follows at once.' },
          { value: 'default', label: 'Not metered' },
        ],
      },
    ],
    values: ({ labels, link_setting }) => ({ labels: linesOfPairs(labels), link_setting }),
    body: ({ labels, link_setting }) => ({ labels: pairsOf(labels), link_setting }),
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
      <section class="part" aria-labelledby="steps">
        <h3 id="steps">How it joined</h3>
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
