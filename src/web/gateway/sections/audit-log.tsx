import type { JSX } from 'preact';
import type { AuditEvent } from '../../../management/resources/audit-event.ts';
import { goTo, linkTo } from '../../ui/router.ts';
import { confirmed } from '../action-dialogs.tsx';
import { Ago, Named, optional } from '../cells.tsx';
import { ItemLink } from '../item-link.tsx';
import { ItemTable } from '../item-table.tsx';
import type { Action, Column, Section, SectionName } from '../section.ts';
import { api } from '../session.ts';

/** What the kinds of objects are called, and which section has those that still exist. */
const KINDS: Readonly<Record<string, { label: string; section?: SectionName }>> = {
  agent_command: { label: 'Command to an agent' },
  api_key: { label: 'API key', section: 'api-keys' },
  bot_user: { label: 'Bot user', section: 'bot-users' },
  certificate_authority: { label: 'Client CA', section: 'authorities' },
  dashboard_session: { label: 'Dashboard session' },
  database: { label: 'Database' },
  device: { label: 'Device', section: 'devices' },
  domain: { label: 'Domain', section: 'domains' },
  ended_sign_ins: { label: 'Ended sign-ins' },
  endpoint: { label: 'Cloud endpoint', section: 'endpoints' },
  endpoint_configuration: { label: 'Endpoint configuration' },
  endpoint_policy: { label: 'Policy of an agent’s endpoint' },
  enrolment_key: { label: 'Invite', section: 'invites' },
  event_destination: { label: 'Event destination', section: 'event-destinations' },
  event_subscription: { label: 'Event subscription', section: 'event-subscriptions' },
  gateway: { label: 'Gateway' },
  http_response_backend: { label: 'Fixed response', section: 'responses' },
  ip_policy: { label: 'IP policy', section: 'ip-policies' },
  ip_policy_rule: { label: 'Rule of an IP policy' },
  ip_restriction: { label: 'IP restriction', section: 'ip-restrictions' },
  passkey: { label: 'Passkey' },
  person: { label: 'Person', section: 'people' },
  person_link: { label: 'Link of a person' },
  secret: { label: 'Secret' },
  share_link: { label: 'Share link', section: 'share-links' },
  site_name: { label: 'Name below a site' },
  tcp_address: { label: 'TCP address', section: 'tcp-addresses' },
  tls_certificate: { label: 'Certificate', section: 'certificates' },
  tls_edge: { label: 'TLS edge', section: 'edges' },
  tunnel_credential: { label: 'Authtoken', section: 'authtokens' },
  tunnel_group_backend: { label: 'Tunnel group', section: 'tunnel-groups' },
  vault: { label: 'Vault', section: 'vaults' },
};

/** `domain_created.v0` as the kind and what has happened. */
function partsOf({ type }: Pick<AuditEvent, 'type'>): [kind: string, what: string] {
  const [, kind = type, what = ''] = /^(\w+)_(created|updated|deleted)\.v\d+$/.exec(type) ?? [];
  return [kind, what];
}

function titleOf(event: AuditEvent): string {
  const [kind, what] = partsOf(event);
  return `${KINDS[kind]?.label ?? kind} ${what}`.trim();
}

/** What people call the object. */
function objectOf({ before, after, object_id }: AuditEvent): string {
  const { domain, name, host, description } = after ?? before ?? {};
  return (
    [domain, name, host, description].find((text) => typeof text === 'string' && text !== '')?.toString() ?? object_id
  );
}

function Actor({ by, by_description }: AuditEvent): JSX.Element | string {
  if (by.startsWith('ak_')) return <ItemLink section="api-keys" id={by} />;
  const name = by_description ?? by;
  return by.startsWith('prs_') ? <a href={linkTo('people', by)}>{name}</a> : name;
}

const HOUR_MS = 3_600_000;
const SPANS = [
  { value: '1h', label: 'Last hour', ms: HOUR_MS },
  { value: '24h', label: 'Last 24 hours', ms: 24 * HOUR_MS },
  { value: '7d', label: 'Last 7 days', ms: 168 * HOUR_MS },
  { value: '30d', label: 'Last 30 days', ms: 720 * HOUR_MS },
];
const sinceOf = (span: string): string =>
  new Date(Date.now() - (SPANS.find(({ value }) => value === span)?.ms ?? 0)).toISOString();

/** Who has changed what. */
export const auditLogSection: Section<AuditEvent> = {
  name: 'audit-log',
  path: '/audit_events',
  listKey: 'audit_events',
  tables: ['audit_log'],
  nameOf: (event) => `${titleOf(event)}: ${objectOf(event)}`,
  columns: [
    { head: 'What', cell: (event) => <Named name={titleOf(event)} below={objectOf(event)} /> },
    {
      head: 'By',
      cell: ({ by, by_description }) => <Named name={by_description ?? by} below={by_description && by} />,
    },
    { head: 'From', cell: ({ from_address }) => from_address ?? '–' },
    { head: 'When', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchTexts: (event) => [
    ...[event.id, event.type, titleOf(event), event.object_id, event.by, event.by_description, event.from_address],
    ...[event.before, event.after].map((values) => values && JSON.stringify(values)),
  ],
  filters: [
    {
      name: 'type',
      label: 'Kind',
      options: Object.entries(KINDS).map(([value, { label }]) => ({ value, label })),
    },
    { name: 'object_id', label: 'Id of the object' },
    { name: 'by', label: 'By' },
    { name: 'since', label: 'When', options: SPANS, parameter: sinceOf },
  ],
  exportPath: '/dashboard/audit-log.jsonl',
  empty: {
    title: 'No changes yet',
    text: 'Changes by the management API, the dashboard and commands are kept here for 90 days.',
  },
  facts: (event) => {
    const [kind] = partsOf(event);
    const section = KINDS[kind]?.section;
    const isLinked = section !== undefined && event.after !== null;
    return [
      { label: 'Object', value: isLinked ? <ItemLink section={section} id={event.object_id} /> : objectOf(event) },
      { label: 'Id of the object', value: <code>{event.object_id}</code> },
      {
        label: 'By',
        value: <Actor {...event} />,
      },
      ...optional('From', event.from_address),
      { label: 'When', value: <Ago moment={event.created_at} /> },
    ];
  },
  more: (event) => (
    <>
      {event.policy_difference !== undefined && <PolicyDifference text={event.policy_difference} />}
      <Members event={event} />
    </>
  ),
  actions: (event) => (isUndoable(event) ? [undo(event)] : []),
};

const isUndoable = ({ before, after, policy_difference }: AuditEvent): boolean =>
  before !== null && after !== null && policy_difference !== undefined;

/** Puts a traffic policy back, then shows the change that this was. */
function undo(event: AuditEvent): Action {
  let undone = event.id;
  const action = confirmed({
    name: 'undo',
    label: 'Undo',
    title: `Undo this change of ${objectOf(event)}?`,
    effects: [
      'The traffic policy becomes what it was before, for all clients at once. Other members stay.',
      'If the policy has been changed since, nothing happens.',
    ],
    submit: 'Undo the change',
    isDestructive: false,
    run: async () => {
      undone = (await api<AuditEvent>('POST', `/audit_events/${event.id}/undo`)).id;
    },
  });
  const dialog: Action['dialog'] = (close, done) =>
    action.dialog(close, async () => {
      await done();
      goTo('audit-log', undone);
    });
  return { ...action, dialog };
}

/** Lines as `diff -u` shows them. Their signs say what their colours do. */
function PolicyDifference({ text }: { text: string }): JSX.Element {
  const lines = text.split('\n').map((line, number) => ({ line, number }));
  return (
    <section class="part" aria-labelledby="policy-difference">
      <h3 id="policy-difference">Traffic policy</h3>
      {text === '' ? (
        <p class="hint">Only its layout or comments have changed.</p>
      ) : (
        <>
          <pre class="difference">
            {lines.map(({ line, number }) => (
              <DifferenceLine key={number} line={line} />
            ))}
          </pre>
          <p class="hint">Secrets are masked. The policy is shown as YAML, without comments.</p>
        </>
      )}
    </section>
  );
}

function DifferenceLine({ line }: { line: string }): JSX.Element {
  if (line.startsWith('@@')) return <span class="place">{line}</span>;
  const sign = line.slice(0, 1);
  const Element = sign === '+' ? 'ins' : sign === '-' ? 'del' : 'span';
  return (
    <Element>
      <span class="sign">{sign}</span>
      {line.slice(1)}
    </Element>
  );
}

interface Member {
  /** Its name. */
  id: string;
  before: unknown;
  after: unknown;
}

const COLUMNS: readonly Column<Member>[] = [
  { head: 'Member', cell: ({ id }) => <code>{id}</code> },
  { head: 'Before', cell: ({ before }) => shown(before) },
  { head: 'After', cell: ({ after }) => shown(after) },
];

function shown(value: unknown): JSX.Element | string {
  if (value === undefined || value === null || value === '') return '–';
  return typeof value === 'string' ? value : <code>{JSON.stringify(value)}</code>;
}

/** The members that have changed. */
function Members({ event: { before, after, policy_difference } }: { event: AuditEvent }): JSX.Element | null {
  const all = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  // Its digests say less than the difference.
  const names = policy_difference === undefined ? all : all.filter((name) => name !== 'traffic_policy');
  const changed = names
    .map((id) => ({ id, before: before?.[id], after: after?.[id] }))
    .filter((member) => JSON.stringify(member.before) !== JSON.stringify(member.after));
  if (changed.length === 0 && policy_difference !== undefined) return null;
  return (
    <section class="part" aria-labelledby="members">
      <h3 id="members">Members</h3>
      <ItemTable title="Members" columns={COLUMNS} items={changed} />
    </section>
  );
}
