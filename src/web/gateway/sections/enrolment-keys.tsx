import type { EnrolmentKey } from '../../../management/resources/enrolment-key.ts';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { present } from '../../ui/time-span.ts';
import { ANNOTATION_FIELDS, newAnnotations } from '../annotations.ts';
import { dateOf, Named } from '../cells.tsx';
import { confirmed, removal } from '../confirm-dialog.tsx';
import { commonFacts, optional, Pairs } from '../facts.tsx';
import { fleet } from '../fleet-strings.ts';
import type { FormField, FormValues, ShownOnce } from '../form.ts';
import { ItemLink } from '../item-link.tsx';
import type { Section } from '../section.ts';
import { api } from '../session.ts';

const text = fleet.invites;
const DAY_MS = 86_400_000;
const OPTIONAL = { min: 1, canBeEmpty: true };

/** The fields of a new invite, without its site. */
export const INVITE_FIELDS: readonly FormField[] = [
  { name: 'max_uses', label: text.uses, hint: text.usesHint, kind: 'number', bounds: { ...OPTIONAL, max: 1_000_000 } },
  {
    name: 'days',
    member: 'expires_at',
    label: text.days,
    hint: text.daysHint,
    kind: 'number',
    bounds: { ...OPTIONAL, max: 36_500 },
  },
  {
    name: 'approval',
    label: text.approval,
    hint: text.approvalHint,
    kind: 'choice',
    options: [
      { value: 'no', label: text.approvalOptions.no, hint: text.approvalHint },
      { value: 'yes', label: text.approvalOptions.yes },
    ],
  },
  {
    name: 'names',
    label: text.names,
    kind: 'choice',
    options: [
      { value: 'any', label: text.namesOptions.any, hint: text.namesHints.any },
      { value: 'own', label: text.namesOptions.own, hint: text.namesHints.own },
    ],
  },
];

/** What they show at first: as `device-agent gateway invite` does, one device within a week. */
export const INVITE_VALUES: FormValues = { max_uses: '1', days: '7' };

/** The body that creates an invite. */
export function inviteBody({ site = '', max_uses = '', days = '', approval, names, ...values }: FormValues): object {
  return {
    site: site.trim(),
    ...(max_uses.trim() !== '' && { max_uses: Number(max_uses) }),
    ...(days.trim() !== '' && { expires_at: new Date(Date.now() + Number(days) * DAY_MS).toISOString() }),
    ...(approval === 'yes' && { needs_approval: true }),
    ...(names === 'own' && { own_names_only: true }),
    ...newAnnotations(values),
  };
}

/** What devices join with, from the answer to the creation of an invite. */
export function joinCommand({ code }: Readonly<Record<string, unknown>>): ShownOnce | null {
  return typeof code === 'string' ? { text: `echo ${code} | sudo device-agent join -`, qr: code } : null;
}

function stateOf({ revoked_at, expires_at, max_uses, uses }: EnrolmentKey): { tone: Tone; label: string } {
  if (revoked_at !== null) return { tone: 'neutral', label: text.revoked };
  if (expires_at !== null && new Date(expires_at).getTime() <= present.value)
    return { tone: 'neutral', label: text.expired };
  if (max_uses !== null && uses >= max_uses) return { tone: 'neutral', label: text.usedUp };
  return { tone: 'good', label: text.valid };
}

const state = (key: EnrolmentKey) => <Badge tone={stateOf(key).tone}>{stateOf(key).label}</Badge>;
const nameOf = ({ site }: EnrolmentKey): string => `*.${site}`;
const expiry = ({ expires_at }: EnrolmentKey) => (expires_at === null ? text.never : dateOf(expires_at));

export const invitesSection: Section<EnrolmentKey> = {
  name: 'invites',
  path: '/enrolment_keys',
  listKey: 'enrolment_keys',
  isLive: false,
  tables: ['enrolment_keys'],
  nameOf,
  columns: [
    { head: text.site, cell: (key) => <Named name={nameOf(key)} below={key.description} unicode={key.site} /> },
    { head: text.state, cell: state },
    { head: text.uses, cell: ({ uses, max_uses }) => text.usedBy(uses, max_uses) },
    { head: text.expires, cell: expiry },
  ],
  searchText: (key) => [key.id, nameOf(key), key.description, stateOf(key).label].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: {
    label: text.newLabel,
    fields: [
      { name: 'site', label: text.site, hint: text.siteHint, kind: 'text', required: text.siteRequired },
      ...INVITE_FIELDS,
      ...ANNOTATION_FIELDS.slice(0, 1),
    ],
    values: INVITE_VALUES,
    body: inviteBody,
    once: joinCommand,
  },
  facts: (key) => [
    { label: text.state, value: state(key) },
    { label: text.uses, value: text.usedBy(key.uses, key.max_uses) },
    { label: text.expires, value: expiry(key) },
    { label: text.approval, value: key.needs_approval ? text.approvalOptions.yes : text.approvalOptions.no },
    { label: text.names, value: key.own_names_only ? text.namesOptions.own : text.namesOptions.any },
    { label: text.owner, value: <ItemLink section="bot-users" id={key.owner_id} /> },
    ...optional(fleet.devices.ports, key.tcp_ports),
    ...optional(fleet.devices.labels, Object.keys(key.labels).length > 0 && <Pairs of={key.labels} />),
    ...commonFacts(key),
  ],
  actions: (key) => {
    const path = `/enrolment_keys/${key.id}`;
    const { label, title, effect, submit } = text.revoke;
    const revoke = confirmed({
      name: 'revoke',
      label,
      title,
      effects: [effect],
      submit,
      isDestructive: true,
      run: () => api('PATCH', path, { revoked: true }),
    });
    const remove = removal({ title: text.remove.title, effects: [effect], submit: text.remove.submit, path });
    return key.revoked_at === null ? [revoke, remove] : [remove];
  },
};
