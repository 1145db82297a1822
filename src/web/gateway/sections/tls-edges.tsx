import type { TlsEdge } from '../../../management/resources/tls-edge.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { EdgeModules, moduleActions, modulesOf } from '../edge-modules.tsx';
import { commonFacts } from '../facts.tsx';
import { type FormField, linesOf } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';
import { gateway } from '../strings.ts';
import { traffic } from '../traffic-strings.ts';

const text = traffic.edges;
const FIELDS: readonly FormField[] = [
  {
    name: 'hostports',
    label: text.hostports,
    hint: text.hostportsHint,
    kind: 'lines',
    required: text.hostportsRequired,
  },
  ...ANNOTATION_FIELDS,
];

/** The addresses of an edge; a description stands for an edge without any. */
export function nameOfEdge({ hostports, description }: Pick<TlsEdge, 'hostports' | 'description'>): string {
  const [first, ...others] = hostports ?? [];
  if (first === undefined) return description || text.noAddresses;
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
    { head: text.name, cell: (edge) => <Named name={nameOfEdge(edge)} below={edge.description} /> },
    { head: text.modules, cell: (edge) => modulesOf(edge).join(', ') || gateway.list.none },
    { head: gateway.item.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (edge) => [edge.id, edge.description, edge.metadata, ...(edge.hostports ?? [])].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: {
    label: text.newLabel,
    fields: FIELDS.slice(0, 2),
    body: ({ hostports, ...values }) => ({ hostports: linesOf(hostports), ...newAnnotations(values) }),
  },
  facts: (edge) => [
    { label: text.serves, value: <pre>{(edge.hostports ?? []).join('\n') || text.noAddresses}</pre> },
    ...commonFacts(edge),
  ],
  more: (edge) => <EdgeModules edge={edge} />,
  actions: (edge) => {
    const path = `/edges/tls/${edge.id}`;
    const { title, address, nothing, submit } = text.remove;
    const stops = (edge.hostports ?? []).map(address);
    return [
      edited({
        name: 'edit',
        label: gateway.item.edit,
        method: 'PATCH',
        path,
        form: {
          label: text.edit,
          fields: FIELDS,
          values: { ...annotationValues(edge), hostports: (edge.hostports ?? []).join('\n') },
          body: ({ hostports, ...values }) => ({ hostports: linesOf(hostports), ...changedAnnotations(values) }),
        },
      }),
      removal({
        title: title(nameOfEdge(edge)),
        effects: stops.length > 0 ? stops : [nothing],
        submit,
        path,
      }),
      ...moduleActions(edge),
    ];
  },
};
