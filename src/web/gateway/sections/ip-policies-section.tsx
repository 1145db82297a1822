import type { JSX } from 'preact';
import type {
  IpPolicy,
  IpPolicyRule,
  IpRestriction,
  IpRestrictionType,
} from '../../../management/resources/ip-policy.ts';
import { Badge, Notice } from '../../ui/notice.tsx';
import { edited, removal } from '../action-dialogs.tsx';
import { Named } from '../cells.tsx';
import { type FormField, textLines } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { OwnedItems } from '../item-table.tsx';
import { loadOptions } from '../paged-list.ts';
import { ANNOTATIONS, CREATED, DESCRIPTION_FIELD, newAnnotations, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action, ListColumn } from '../section.ts';

const nameOf = ({ description, id }: IpPolicy): string => description || id;

export const ipPoliciesSection = resource<IpPolicy>(RESOURCES.ipPolicies, {
  name: 'ip-policies',
  title: 'IP policies',
  tables: ['ip_policies', 'ip_policy_rules'],
  nameOf,
  columns: [{ head: 'IP policy', cell: (policy) => <Named name={nameOf(policy)} below={policy.id} /> }, CREATED],
  searchTexts: ({ id, description, metadata }) => [id, description, metadata],
  empty: {
    title: 'No IP policies yet',
    text: 'An IP policy is a set of address ranges that TLS edges and traffic policies allow or deny.',
  },
  create: { label: 'Create IP policy', fields: ANNOTATIONS },
  edit: { label: 'Edit IP policy', fields: ANNOTATIONS },
  facts: () => [],
  more: (policy) => <Rules key={policy.id} policy={policy} />,
  remove: (policy) => ({
    title: `Delete the IP policy ${nameOf(policy)}?`,
    effects: [
      'Its rules are deleted with it.',
      'An IP policy that a TLS edge or an IP restriction uses cannot be deleted.',
    ],
    submit: 'Delete IP policy',
  }),
});

const COLUMNS: readonly ListColumn<IpPolicyRule>[] = [
  { head: 'Address range', cell: ({ cidr }) => <code>{cidr}</code> },
  {
    head: 'Action',
    cell: ({ action }) => (
      <Badge tone={action === 'allow' ? 'good' : 'bad'}>{action === 'allow' ? 'Allow' : 'Deny'}</Badge>
    ),
  },
  { head: 'Description', cell: ({ description }) => description || '–' },
];

function Rules({ policy }: { policy: IpPolicy }): JSX.Element {
  return (
    <OwnedItems<IpPolicyRule>
      title="Rules"
      path="/ip_policy_rules"
      listKey="ip_policy_rules"
      columns={COLUMNS}
      owner={policy}
      isOwned={({ ip_policy }) => ip_policy.id === policy.id}
      add={() => addRule(policy)}
      actions={(rule) => [removeRule(rule)]}
      none={<Notice tone="warning">No rules yet: it allows nobody.</Notice>}
    />
  );
}

function addRule(policy: IpPolicy): Action {
  return edited({
    name: 'add-rule',
    label: 'Add rule',
    method: 'POST',
    path: '/ip_policy_rules',
    form: {
      label: 'Add rule',
      fields: [
        {
          name: 'cidr',
          label: 'Address range',
          hint: 'Such as 203.0.113.0/24 or 2001:db8::/32.',
          kind: 'text',
          required: 'Enter an address range.',
        },
        {
          name: 'action',
          label: 'Action',
          kind: 'choice',
          options: [
            { value: 'allow', label: 'Allow' },
            { value: 'deny', label: 'Deny' },
          ],
        },
        DESCRIPTION_FIELD,
      ],
      body: ({ cidr = '', action = 'allow', ...values }) => ({
        cidr: cidr.trim(),
        action,
        ip_policy_id: policy.id,
        ...newAnnotations(values),
      }),
    },
  });
}

function removeRule({ id, cidr, action }: IpPolicyRule): Action {
  const effects = [
    action === 'allow'
      ? `Clients of ${cidr} may no longer connect, unless another rule allows it.`
      : `Clients of ${cidr} may connect where another rule allows it.`,
  ];
  return removal({
    title: `Delete the rule for ${cidr}?`,
    effects,
    submit: 'Delete rule',
    path: `/ip_policy_rules/${id}`,
  });
}

const TYPES: Readonly<Record<IpRestrictionType, string>> = {
  endpoints: 'Endpoints',
  agent: 'Agents',
  api: 'API',
  dashboard: 'Dashboard',
};
const kindOf = ({ type }: Pick<IpRestriction, 'type'>): string => TYPES[type as IpRestrictionType] ?? type;
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

export const ipRestrictionsSection = resource<IpRestriction>(RESOURCES.ipRestrictions, {
  name: 'ip-restrictions',
  title: 'IP restrictions',
  nameOf: kindOf,
  columns: [
    { head: 'Restricts', cell: (each) => <Named name={kindOf(each)} below={each.description} /> },
    { head: 'State', cell: state },
    CREATED,
  ],
  searchTexts: (each) => [each.id, kindOf(each), each.description, each.metadata],
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
      ip_policy_ids: textLines(ids),
    }),
  },
  edit: {
    label: 'Edit IP restriction',
    fields: FIELDS,
    values: ({ enforced, ip_policies }) => ({
      enforced: enforced ? 'yes' : 'no',
      ids: ip_policies.map(({ id }) => id).join('\n'),
    }),
    body: ({ enforced, ids }) => ({ enforced: enforced === 'yes', ip_policy_ids: textLines(ids) }),
  },
  facts: (each) => [
    { label: 'State', value: state(each) },
    {
      label: 'IP policies',
      value: each.ip_policies.map(({ id }) => (
        <div key={id}>
          <ItemLink id={id} />
        </div>
      )),
    },
  ],
  remove: (each) => ({
    title: `Delete the IP restriction for ${kindOf(each)}?`,
    effects: ['Clients of all addresses may use it.'],
    submit: 'Delete IP restriction',
  }),
});
