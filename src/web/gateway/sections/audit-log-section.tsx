import type { JSX } from 'preact';
import type { PageResource } from '../../../management/page-resources.ts';
import type { AuditEvent } from '../../../management/resources/audit-event.ts';
import { goTo, linkTo } from '../../ui/router.ts';
import { confirmed } from '../action-dialogs.tsx';
import { Ago, Named, optional } from '../cells.tsx';
import { ItemLink, useSectionOf } from '../item-link.tsx';
import { ItemTable } from '../item-table.tsx';
import { listOf } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action, ListColumn, Section } from '../section.ts';
import { api } from '../session.ts';

/** What the kinds of objects are called: resources, and what else events are about. */
const RESOURCE_KINDS: Readonly<Record<string, string>> = Object.fromEntries(
  Object.values<PageResource>(RESOURCES).flatMap(({ eventName, label }) =>
    eventName === null ? [] : [[eventName, label]],
  ),
);
const KINDS: Readonly<Record<string, string>> = {
  ...RESOURCE_KINDS,
  agent_command: 'Command to an agent',
  dashboard_session: 'Dashboard session',
  database: 'Database',
  ended_sign_ins: 'Ended sign-ins',
  endpoint_policy: 'Policy of an agent’s endpoint',
  gateway: 'Gateway',
  passkey: 'Passkey',
  person_link: 'Link of a person',
  site_name: 'Name below a site',
};

/** `domain_created.v0` as the kind and what has happened. */
function partsOf({ type }: Pick<AuditEvent, 'type'>): [kind: string, what: string] {
  const [, kind = type, what = ''] = /^(\w+)_(created|updated|deleted)\.v\d+$/.exec(type) ?? [];
  return [kind, what];
}

/** What has happened to objects of which kind. */
export function titleOf(event: Pick<AuditEvent, 'type'>): string {
  const [kind, what] = partsOf(event);
  return `${KINDS[kind] ?? kind} ${what}`.trim();
}

/** What people call the object. */
export function objectOf({ before, after, object_id }: Pick<AuditEvent, 'before' | 'after' | 'object_id'>): string {
  const { domain, name, host, description, action, devices } = after ?? before ?? {};
  if (typeof devices === 'number') return `${action}: ${devices} devices`;
  return (
    [domain, name, host, description].find((text) => typeof text === 'string' && text !== '')?.toString() ?? object_id
  );
}

/** With a link to its page, if it still exists and has one. */
function ChangedObject({ event }: { event: AuditEvent }): JSX.Element | string {
  const { object_id, after } = event;
  const section = useSectionOf(object_id);
  const [kind] = partsOf(event);
  return kind in RESOURCE_KINDS && section && after !== null ? <ItemLink id={object_id} /> : objectOf(event);
}

function Actor({ by, by_description }: AuditEvent): JSX.Element | string {
  if (by.startsWith('ak_')) return <ItemLink id={by} />;
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
  ...listOf(RESOURCES.auditEvents),
  name: 'audit-log',
  title: 'Audit log',
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
  filters: [
    {
      name: 'type',
      label: 'Kind',
      options: Object.entries(KINDS)
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([value, label]) => ({ value, label })),
    },
    { name: 'object_id', label: 'Id of the object' },
    { name: 'by', label: 'By' },
    { name: 'since', label: 'When', options: SPANS, parameter: sinceOf },
    { name: 'part_of', label: 'Id of the bulk action' },
  ],
  exportPath: '/dashboard/audit-log.jsonl',
  empty: {
    title: 'No changes yet',
    text: 'Changes by the management API, the dashboard and commands are kept here for 90 days.',
  },
  facts: (event) => {
    return [
      { label: 'Object', value: <ChangedObject event={event} /> },
      { label: 'Id of the object', value: <code>{event.object_id}</code> },
      {
        label: 'By',
        value: <Actor {...event} />,
      },
      ...optional('From', event.from_address),
      ...optional('Bulk action', event.part_of && <ItemLink id={event.part_of} />),
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

const COLUMNS: readonly ListColumn<Member>[] = [
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
