import type { JSX } from 'preact';
import type { IpPolicy, IpPolicyRule } from '../../../management/resources/ip-policy.ts';
import { Badge, Notice } from '../../ui/notice.tsx';
import { edited, removal } from '../action-dialogs.tsx';
import { Named } from '../cells.tsx';
import { OwnedItems } from '../owned-items.tsx';
import { ANNOTATIONS, CREATED, DESCRIPTION, newAnnotations, resource } from '../resource.tsx';
import type { Action, Column } from '../section.ts';

const nameOf = ({ description, id }: IpPolicy): string => description || id;

export const ipPoliciesSection = resource<IpPolicy>({
  name: 'ip-policies',
  path: '/ip_policies',
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

const COLUMNS: readonly Column<IpPolicyRule>[] = [
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
        DESCRIPTION,
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
