import type { IpPolicy } from '../../../management/resources/ip-policy.ts';
import type { IpRestriction, IpRestrictionType } from '../../../management/resources/ip-restriction.ts';
import { Badge } from '../../ui/notice.tsx';
import { Named } from '../cells.tsx';
import { type FormField, linesOf } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { loadOptions } from '../paged-list.ts';
import { ANNOTATIONS, CREATED, resource } from '../resource.tsx';
import { ipPoliciesSection } from './ip-policies.tsx';

const TYPES: Readonly<Record<IpRestrictionType, string>> = {
  endpoints: 'Endpoints',
  agent: 'Agents',
  api: 'API',
  dashboard: 'Dashboard',
};
const nameOf = ({ type }: Pick<IpRestriction, 'type'>): string => TYPES[type as IpRestrictionType] ?? type;
const state = ({ enforced }: IpRestriction) => (
  <Badge tone={enforced ? 'good' : 'neutral'}>{enforced ? 'Enforced' : 'Not enforced'}</Badge>
);

const FIELDS: readonly FormField[] = [
  {
    name: 'enforced',
    label: 'State',
    kind: 'choice',
    options: [
      { value: 'no', label: 'Not enforced', hint: 'It has no effect.' },
      {
        value: 'yes',
        label: 'Enforced',
        hint: 'Others are refused at once, also you. From the gateway’s own machine, the API and the dashboard always work.',
      },
    ],
  },
  {
    name: 'ids',
    member: 'ip_policy_ids',
    label: 'IP policies',
    hint: 'One of them must allow an address, and none of them deny it.',
    kind: 'some-of',
    required: 'Choose at least one IP policy.',
    load: () => loadOptions<IpPolicy>(ipPoliciesSection),
  },
  ...ANNOTATIONS,
];

export const ipRestrictionsSection = resource<IpRestriction>({
  name: 'ip-restrictions',
  path: '/ip_restrictions',
  nameOf,
  columns: [
    { head: 'Restricts', cell: (each) => <Named name={nameOf(each)} below={each.description} /> },
    { head: 'State', cell: state },
    CREATED,
  ],
  searchTexts: (each) => [each.id, nameOf(each), each.description, each.metadata],
  empty: {
    title: 'No IP restrictions yet',
    text: 'An IP restriction says which addresses may use endpoints, the management API or the dashboard, or connect agents.',
  },
  create: {
    label: 'Create IP restriction',
    fields: [
      {
        name: 'type',
        label: 'Restricts',
        kind: 'choice',
        options: Object.entries(TYPES).map(([value, label]) => ({ value, label })),
      },
      ...FIELDS,
    ],
    body: ({ type = 'endpoints', enforced, ids }) => ({
      type,
      enforced: enforced === 'yes',
      ip_policy_ids: linesOf(ids),
    }),
  },
  edit: {
    label: 'Edit IP restriction',
    fields: FIELDS,
    values: ({ enforced, ip_policies }) => ({
      enforced: enforced ? 'yes' : 'no',
      ids: ip_policies.map(({ id }) => id).join('\n'),
    }),
    body: ({ enforced, ids }) => ({ enforced: enforced === 'yes', ip_policy_ids: linesOf(ids) }),
  },
  facts: (each) => [
    { label: 'State', value: state(each) },
    {
      label: 'IP policies',
      value: each.ip_policies.map(({ id }) => (
        <div key={id}>
          <ItemLink section="ip-policies" id={id} />
        </div>
      )),
    },
  ],
  remove: (each) => ({
    title: `Delete the IP restriction for ${nameOf(each)}?`,
    effects: ['Clients of all addresses may use it.'],
    submit: 'Delete IP restriction',
  }),
});
