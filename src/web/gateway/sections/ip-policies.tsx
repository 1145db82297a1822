import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { IpPolicy } from '../../../management/resources/ip-policy.ts';
import type { IpPolicyRule } from '../../../management/resources/ip-policy-rule.ts';
import { Button } from '../../ui/button.tsx';
import { Badge, Notice, ProblemNotice } from '../../ui/notice.tsx';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts } from '../facts.tsx';
import { edited } from '../form-dialog.tsx';
import { ItemTable } from '../item-table.tsx';
import { PagedList } from '../paged-list.ts';
import type { Action, Column, Section } from '../section.ts';
import { gateway } from '../strings.ts';
import { traffic } from '../traffic-strings.ts';

const text = traffic.ipPolicies;
const nameOf = ({ description }: IpPolicy): string => description || gateway.item.unnamed;
/** The API lists the rules of all policies together. */
const MOST_RULES = 10_000;

export const ipPoliciesSection: Section<IpPolicy> = {
  name: 'ip-policies',
  path: '/ip_policies',
  listKey: 'ip_policies',
  isLive: false,
  tables: ['ip_policies', 'ip_policy_rules'],
  nameOf,
  columns: [
    { head: text.name, cell: (policy) => <Named name={nameOf(policy)} below={policy.id} /> },
    { head: gateway.item.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: ({ id, description, metadata }) => [id, description, metadata].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: { label: text.newLabel, fields: ANNOTATION_FIELDS, body: newAnnotations },
  facts: commonFacts,
  more: (policy) => <Rules key={policy.id} policy={policy} />,
  actions: (policy) => {
    const path = `/ip_policies/${policy.id}`;
    const { title, used, rules, submit } = text.remove;
    return [
      edited({
        name: 'edit',
        label: gateway.item.edit,
        method: 'PATCH',
        path,
        form: {
          label: text.edit,
          fields: ANNOTATION_FIELDS,
          values: annotationValues(policy),
          body: changedAnnotations,
        },
      }),
      removal({ title: title(nameOf(policy)), effects: [rules, used], submit, path }),
    ];
  },
};

const COLUMNS: readonly Column<IpPolicyRule>[] = [
  { head: text.range, cell: ({ cidr }) => <code>{cidr}</code> },
  {
    head: text.action,
    cell: ({ action }) => (
      <Badge tone={action === 'allow' ? 'good' : 'bad'}>
        {action === 'allow' ? text.actions.allow : text.actions.deny}
      </Badge>
    ),
  },
  { head: gateway.item.description, cell: ({ description }) => description || gateway.list.none },
];

function Rules({ policy }: { policy: IpPolicy }): JSX.Element {
  const [list] = useState(() => new PagedList<IpPolicyRule>('/ip_policy_rules', 'ip_policy_rules'));
  const open = useSignal<Action | null>(null);
  const load = () => void list.refresh(MOST_RULES);
  // It is loaded again when rules have changed.
  useEffect(load, [policy]);
  const rules = list.items.value.filter(({ ip_policy }) => ip_policy.id === policy.id);
  // The table is current before the dialog returns the focus to it.
  const done = async () => {
    await list.reload();
    open.value = null;
    load();
  };
  return (
    <section class="part" aria-labelledby="rules">
      <div class="section-head">
        <h3 id="rules">{text.rules}</h3>
        <Button
          onClick={() => {
            open.value = addRule(policy);
          }}
        >
          {text.addRule}
        </Button>
      </div>
      {list.problem.value && <ProblemNotice title={gateway.list.failed} problem={list.problem.value} />}
      {rules.length === 0 && list.state.value !== 'loading' && <Notice tone="warning">{text.noRules}</Notice>}
      {rules.length > 0 && (
        <ItemTable
          title={text.rules}
          columns={COLUMNS}
          items={rules}
          actions={(rule) => [removeRule(rule)]}
          onAction={(action) => {
            open.value = action;
          }}
        />
      )}
      {open.value?.dialog(() => {
        open.value = null;
      }, done)}
    </section>
  );
}

function addRule(policy: IpPolicy): Action {
  return edited({
    name: 'add-rule',
    label: text.addRule,
    method: 'POST',
    path: '/ip_policy_rules',
    form: {
      label: text.addRule,
      fields: [
        { name: 'cidr', label: text.range, hint: text.rangeHint, kind: 'text', required: text.rangeRequired },
        {
          name: 'action',
          label: text.action,
          kind: 'choice',
          options: [
            { value: 'allow', label: text.actions.allow },
            { value: 'deny', label: text.actions.deny },
          ],
        },
        ...ANNOTATION_FIELDS.slice(0, 1),
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
  const { title, allow, deny, submit } = text.removeRule;
  const effects = [action === 'allow' ? allow(cidr) : deny(cidr)];
  return removal({ title: title(cidr), effects, submit, path: `/ip_policy_rules/${id}` });
}
