import type { EnrolmentKey } from '../../../management/resources/enrolment-key.ts';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { present } from '../../ui/time-span.ts';
import { confirmed } from '../action-dialogs.tsx';
import { dateOf, Named, optional, Pairs } from '../cells.tsx';
import type { FormField, FormValues, ShownOnce } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { DESCRIPTION, resource } from '../resource.tsx';
import { api } from '../session.ts';

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

function stateOf({ revoked_at, expires_at, max_uses, uses }: EnrolmentKey): { tone: Tone; label: string } {
  if (revoked_at !== null) return { tone: 'neutral', label: 'Revoked' };
  if (expires_at !== null && new Date(expires_at).getTime() <= present.value)
    return { tone: 'neutral', label: 'Expired' };
  if (max_uses !== null && uses >= max_uses) return { tone: 'neutral', label: 'Used up' };
  return { tone: 'good', label: 'Valid' };
}

const state = (key: EnrolmentKey) => <Badge tone={stateOf(key).tone}>{stateOf(key).label}</Badge>;
const nameOf = ({ site }: EnrolmentKey): string => `*.${site}`;
const expiry = ({ expires_at }: EnrolmentKey) => (expires_at === null ? 'never' : dateOf(expires_at));

export const invitesSection = resource<EnrolmentKey>({
  name: 'invites',
  path: '/enrolment_keys',
  nameOf,
  columns: [
    { head: 'Site', cell: (key) => <Named name={nameOf(key)} below={key.description} unicode={key.site} /> },
    { head: 'State', cell: state },
    { head: 'Number of devices', cell: ({ uses, max_uses }) => usedBy(uses, max_uses) },
    { head: 'Expires', cell: expiry },
  ],
  searchTexts: (key) => [key.id, nameOf(key), key.description, stateOf(key).label],
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
      DESCRIPTION,
    ],
    values: INVITE_VALUES,
    body: inviteBody,
    once: joinCommand,
  },
  facts: (key) => [
    { label: 'State', value: state(key) },
    { label: 'Number of devices', value: usedBy(key.uses, key.max_uses) },
    { label: 'Expires', value: expiry(key) },
    { label: 'New devices', value: key.needs_approval ? 'Wait for approval' : 'Join at once' },
    { label: 'Names of tunnels', value: key.own_names_only ? 'Own names only' : 'Any free name of the site' },
    { label: 'Bot user', value: <ItemLink section="bot-users" id={key.owner_id} /> },
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
