import type { HttpResponseBackend } from '../../../management/resources/backend.ts';
import { linesOfPairs, Named, optional } from '../cells.tsx';
import { type FormField, type FormValues, pairsOf } from '../form.tsx';
import { ANNOTATIONS, CREATED, resource } from '../resource.tsx';

const FIELDS: readonly FormField[] = [
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
const nameOf = ({ description, body, status_code }: HttpResponseBackend): string =>
  description || `${status_code} ${body.slice(0, LONGEST)}`.trim();
const bodyOf = ({ body = '', status_code = '', headers }: FormValues): object => ({
  body,
  status_code: status_code.trim() === '' ? 200 : Number(status_code),
  headers: pairsOf(headers),
});

export const responsesSection = resource<HttpResponseBackend>({
  name: 'responses',
  path: '/backends/http_response',
  listKey: 'backends',
  tables: ['http_response_backends'],
  nameOf,
  columns: [
    { head: 'Response', cell: (each) => <Named name={nameOf(each)} below={each.id} /> },
    { head: 'Status', cell: ({ status_code }) => status_code },
    CREATED,
  ],
  searchTexts: ({ id, description, body, status_code }) => [id, description, body, status_code],
  empty: {
    title: 'No fixed responses yet',
    text: 'A fixed response is the backend of a TLS edge: the same answer to each request, such as a notice.',
  },
  create: { label: 'Create fixed response', fields: FIELDS, body: bodyOf },
  edit: {
    label: 'Edit fixed response',
    fields: FIELDS,
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
    title: `Delete the fixed response ${nameOf(each)}?`,
    effects: ['TLS edges that use it no longer answer.'],
    submit: 'Delete fixed response',
  }),
});
