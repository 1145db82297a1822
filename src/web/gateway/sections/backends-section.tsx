import type { HttpResponseBackend, TunnelGroupBackend } from '../../../management/resources/backend.ts';
import { Badge } from '../../ui/notice.tsx';
import { linesOfPairs, Named, optional, Pairs } from '../cells.tsx';
import { type FormField, type FormValues, pairsOf } from '../form.tsx';
import { ANNOTATIONS, CREATED, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';

const GROUP_FIELDS: readonly FormField[] = [
  {
    name: 'labels',
    label: 'Labels',
    hint: 'name=value on each line. A tunnel needs all of them.',
    kind: 'lines',
    required: 'Enter at least one label, such as app=camera.',
  },
  ...ANNOTATIONS,
];
const labelsOf = ({ labels }: FormValues): object => ({ labels: pairsOf(labels) });
const labelsText = ({ labels, description }: TunnelGroupBackend): string =>
  description || linesOfPairs(labels).replaceAll('\n', ', ') || '(no labels: matches no tunnel)';
const tunnels = ({ tunnels: online }: TunnelGroupBackend) => (
  <Badge tone={online.length > 0 ? 'good' : 'warning'}>{online.length}</Badge>
);

export const tunnelGroupsSection = resource<TunnelGroupBackend>(RESOURCES.tunnelGroupBackends, {
  name: 'tunnel-groups',
  title: 'Tunnel groups',
  online: ['tn_'],
  nameOf: labelsText,
  columns: [
    { head: 'Labels', cell: (group) => <Named name={labelsText(group)} below={group.id} /> },
    { head: 'Labels', cell: ({ labels }) => <Pairs of={labels} /> },
    { head: 'Tunnels online', cell: tunnels },
    CREATED,
  ],
  searchTexts: (group) => [group.id, group.description, linesOfPairs(group.labels)],
  empty: {
    title: 'No tunnel groups yet',
    text: 'A tunnel group is the backend of a TLS edge: all tunnels that agents bind under its labels.',
  },
  create: { label: 'Create tunnel group', fields: GROUP_FIELDS, body: labelsOf },
  edit: {
    label: 'Edit tunnel group',
    fields: GROUP_FIELDS,
    values: ({ labels }) => ({ labels: linesOfPairs(labels) }),
    body: labelsOf,
  },
  facts: (group) => [
    { label: 'Labels', value: <Pairs of={group.labels} /> },
    { label: 'Tunnels online', value: tunnels(group) },
  ],
  remove: (group) => ({
    title: `Delete the tunnel group ${labelsText(group)}?`,
    effects: ['TLS edges that use it no longer answer.'],
    submit: 'Delete tunnel group',
  }),
});

const RESPONSE_FIELDS: readonly FormField[] = [
  { name: 'body', label: 'Body', kind: 'code' },
  {
    name: 'status_code',
    label: 'Status',
    hint: 'From 200 to 599. Default: 200.',
    kind: 'number',
    bounds: { min: 200, max: 599, canBeEmpty: true },
  },
  { name: 'headers', label: 'Headers', hint: 'Optional, name: value on each line.', kind: 'lines' },
  ...ANNOTATIONS,
];
const LONGEST = 40;
const responseText = ({ description, body, status_code }: HttpResponseBackend): string =>
  description || `${status_code} ${body.slice(0, LONGEST)}`.trim();
const bodyOf = ({ body = '', status_code = '', headers }: FormValues): object => ({
  body,
  status_code: status_code.trim() === '' ? 200 : Number(status_code),
  headers: pairsOf(headers, ':'),
});

export const responsesSection = resource<HttpResponseBackend>(RESOURCES.httpResponseBackends, {
  name: 'responses',
  title: 'Fixed responses',
  nameOf: responseText,
  columns: [
    { head: 'Response', cell: (each) => <Named name={responseText(each)} below={each.id} /> },
    { head: 'Status', cell: ({ status_code }) => status_code },
    CREATED,
  ],
  searchTexts: ({ id, description, body, status_code }) => [id, description, body, status_code],
  empty: {
    title: 'No fixed responses yet',
    text: 'A fixed response is the backend of a TLS edge: the same answer to each request, such as a notice.',
  },
  create: { label: 'Create fixed response', fields: RESPONSE_FIELDS, body: bodyOf },
  edit: {
    label: 'Edit fixed response',
    fields: RESPONSE_FIELDS,
    values: ({ body, status_code, headers }) => ({
      body,
      status_code: String(status_code),
      headers: linesOfPairs(headers ?? {}, ': '),
    }),
    body: bodyOf,
  },
  facts: (each) => [
    { label: 'Status', value: each.status_code },
    ...optional('Headers', each.headers && <pre>{linesOfPairs(each.headers, ': ')}</pre>),
    ...optional('Body', each.body && <pre>{each.body}</pre>),
  ],
  remove: (each) => ({
    title: `Delete the fixed response ${responseText(each)}?`,
    effects: ['TLS edges that use it no longer answer.'],
    submit: 'Delete fixed response',
  }),
});
