import type { TlsEdge } from '../../../management/resources/tls-edge.ts';
import { Named } from '../cells.tsx';
import { EdgeModuleList, moduleActions, modulesOf } from '../edge-modules.tsx';
import { type FormField, type FormValues, textLines } from '../form.tsx';
import { ANNOTATIONS, CREATED, DESCRIPTION_FIELD, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';

const HOSTPORTS: FormField = {
  name: 'hostports',
  label: 'Addresses',
  hint: 'One per line, such as cam.example.com:443. The host can be a wildcard of a reserved domain.',
  kind: 'lines',
  required: 'Enter at least one address, such as cam.example.com:443.',
};
const hostportsOf = ({ hostports }: FormValues): object => ({ hostports: textLines(hostports) });

/** The addresses of an edge; a description stands for an edge without any. */
export function nameOfEdge({ hostports, description }: Pick<TlsEdge, 'hostports' | 'description'>): string {
  const [first, ...others] = hostports ?? [];
  if (first === undefined) return description || '(no addresses)';
  return others.length === 0 ? first : `${first} +${others.length}`;
}

export const edgesSection = resource<TlsEdge>(RESOURCES.tlsEdges, {
  name: 'edges',
  title: 'TLS edges',
  nameOf: nameOfEdge,
  columns: [
    { head: 'Addresses', cell: (edge) => <Named name={nameOfEdge(edge)} below={edge.description} /> },
    { head: 'Modules', cell: (edge) => modulesOf(edge).join(', ') || '–' },
    CREATED,
  ],
  searchTexts: (edge) => [edge.id, edge.description, edge.metadata, ...(edge.hostports ?? [])],
  empty: {
    title: 'No TLS edges yet',
    text: 'A TLS edge serves addresses of your own from many agents, or with a fixed response.',
  },
  create: { label: 'Create TLS edge', fields: [HOSTPORTS, DESCRIPTION_FIELD], body: hostportsOf },
  edit: {
    label: 'Edit TLS edge',
    fields: [HOSTPORTS, ...ANNOTATIONS],
    values: ({ hostports }) => ({ hostports: (hostports ?? []).join('\n') }),
    body: hostportsOf,
  },
  facts: (edge) => [{ label: 'Serves', value: <pre>{(edge.hostports ?? []).join('\n') || '(no addresses)'}</pre> }],
  more: (edge) => <EdgeModuleList edge={edge} />,
  remove: ({ hostports }) => ({
    effects: hostports?.length
      ? hostports.map((address) => `${address} goes offline for all clients.`)
      : ['It serves no address.'],
    submit: 'Delete TLS edge',
  }),
  actions: (edge, { edit, remove }) => [...edit, ...remove, ...moduleActions(edge)],
});
