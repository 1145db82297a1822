import type { HttpResponseBackend } from '../../../management/resources/http-response-backend.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts, linesOfPairs, optional } from '../facts.tsx';
import { type FormField, type FormValues, pairsOf } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';
import { gateway } from '../strings.ts';
import { traffic } from '../traffic-strings.ts';

const text = traffic.responses;
const FIELDS: readonly FormField[] = [
  { name: 'body', label: text.body, kind: 'code' },
  {
    name: 'status_code',
    label: text.status,
    hint: text.statusHint,
    kind: 'number',
    bounds: { min: 200, max: 599, canBeEmpty: true },
  },
  { name: 'headers', label: text.headers, hint: text.headersHint, kind: 'lines' },
  ...ANNOTATION_FIELDS,
];
const LONGEST = 40;
const nameOf = ({ description, body, status_code }: HttpResponseBackend): string =>
  description || `${status_code} ${body.slice(0, LONGEST)}`.trim();
const bodyOf = ({ body = '', status_code = '', headers }: FormValues): object => ({
  body,
  status_code: status_code.trim() === '' ? 200 : Number(status_code),
  headers: pairsOf(headers),
});

export const responsesSection: Section<HttpResponseBackend> = {
  name: 'responses',
  path: '/backends/http_response',
  listKey: 'backends',
  isLive: false,
  tables: ['http_response_backends'],
  nameOf,
  columns: [
    { head: text.name, cell: (each) => <Named name={nameOf(each)} below={each.id} /> },
    { head: text.status, cell: ({ status_code }) => status_code },
    { head: gateway.item.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: ({ id, description, body, status_code }) => [id, description, body, status_code].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: {
    label: text.newLabel,
    fields: FIELDS,
    body: (values) => ({ ...bodyOf(values), ...newAnnotations(values) }),
  },
  facts: (each) => [
    { label: text.status, value: each.status_code },
    ...optional(text.headers, each.headers && <pre>{linesOfPairs(each.headers, ': ')}</pre>),
    ...optional(text.body, each.body && <pre>{each.body}</pre>),
    ...commonFacts(each),
  ],
  actions: (each) => {
    const path = `/backends/http_response/${each.id}`;
    const { title, effect, submit } = text.remove;
    const { body, status_code, headers } = each;
    return [
      edited({
        name: 'edit',
        label: gateway.item.edit,
        method: 'PATCH',
        path,
        form: {
          label: text.edit,
          fields: FIELDS,
          values: {
            ...annotationValues(each),
            body,
            status_code: String(status_code),
            headers: linesOfPairs(headers ?? {}, ': '),
          },
          body: (values) => ({ ...bodyOf(values), ...changedAnnotations(values) }),
        },
      }),
      removal({ title: title(nameOf(each)), effects: [effect], submit, path }),
    ];
  },
};
