import type { TlsEdge } from '../../../management/resources/tls-edge.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { EdgeModules, moduleActions, modulesOf } from '../edge-modules.tsx';
import { commonFacts } from '../facts.tsx';
import { type FormField, linesOf } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';

const FIELDS: readonly FormField[] = [
  {
    name: 'hostports',
    label: 'Addresses',
    hint: 'One per line, such as cam.example.com:443. The host can be a wildcard of a reserved domain.',
    kind: 'lines',
    required: 'Enter at least one address, such as cam.example.com:443.',
  },
  ...ANNOTATION_FIELDS,
];

/** The addresses of an edge; a description stands for an edge without any. */
export function nameOfEdge({ hostports, description }: Pick<TlsEdge, 'hostports' | 'description'>): string {
  const [first, ...others] = hostports ?? [];
  if (first === undefined) return description || '(no addresses)';
  return others.length === 0 ? first : `${first} +${others.length}`;
}

export const edgesSection: Section<TlsEdge> = {
  name: 'edges',
  path: '/edges/tls',
  listKey: 'tls_edges',
  isLive: false,
  tables: ['tls_edges'],
  nameOf: nameOfEdge,
  columns: [
    { head: 'Addresses', cell: (edge) => <Named name={nameOfEdge(edge)} below={edge.description} /> },
    { head: 'Modules', cell: (edge) => modulesOf(edge).join(', ') || '–' },
    { head: 'Created', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (edge) => [edge.id, edge.description, edge.metadata, ...(edge.hostports ?? [])].join(' '),
  empty: {
    title: 'No TLS edges yet',
    text: 'A TLS edge serves addresses of your own from many agents, or with a fixed response.',
  },
  create: {
    label: 'Create TLS edge',
    fields: FIELDS.slice(0, 2),
    body: ({ hostports, ...values }) => ({ hostports: linesOf(hostports), ...newAnnotations(values) }),
  },
  facts: (edge) => [
    { label: 'Serves', value: <pre>{(edge.hostports ?? []).join('\n') || '(no addresses)'}</pre> },
    ...commonFacts(edge),
  ],
  more: (edge) => <EdgeModules edge={edge} />,
  actions: (edge) => {
    const path = `/edges/tls/${edge.id}`;
    const stops = (edge.hostports ?? []).map((address) => `${address} goes offline for all clients.`);
    return [
      edited({
        name: 'edit',
        label: 'Edit',
        method: 'PATCH',
        path,
        form: {
          label: 'Edit TLS edge',
          fields: FIELDS,
          values: { ...annotationValues(edge), hostports: (edge.hostports ?? []).join('\n') },
          body: ({ hostports, ...values }) => ({ hostports: linesOf(hostports), ...changedAnnotations(values) }),
        },
      }),
      removal({
        title: `Delete ${nameOfEdge(edge)}?`,
        effects: stops.length > 0 ? stops : ['It serves no address.'],
        submit: 'Delete TLS edge',
        path,
      }),
      ...moduleActions(edge),
    ];
  },
};
