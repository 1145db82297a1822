import { CONDITION_IDS, CONDITIONS } from '../../../management/condition-kinds.ts';
import type { ConditionRecord } from '../../../management/resources/condition.ts';
import type { MessageRule } from '../../../management/resources/message-rule.ts';
import { Badge } from '../../ui/notice.tsx';
import { span } from '../../ui/time-span.ts';
import { confirmed, edited } from '../action-dialogs.tsx';
import { Ago, linesOfPairs, Named, optional, Pairs, SilencedUntil } from '../cells.tsx';
import { type FormField, type FormValues, pairsOf, textLines } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { ANNOTATIONS, listOf, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action, Section } from '../section.ts';
import { api } from '../session.ts';
import { DESTINATIONS_FIELD } from './events-section.tsx';

const MAX_MINUTES = 10_080;
const MAX_REMINDER = 43_200;
const MOST_CONDITIONS = 2;

const titleOf = (id: string): string =>
  CONDITION_IDS.flatMap((each) => (each === id ? [CONDITIONS[each].title] : []))[0] ?? id;

/** What a rule is about, in one line. */
function aboutText({ conditions }: MessageRule): string {
  if (conditions.length === 0) return 'Everything';
  const more = conditions.length - MOST_CONDITIONS;
  return conditions.slice(0, MOST_CONDITIONS).map(titleOf).join('; ') + (more > 0 ? ` and ${more} more` : '');
}

/** Whom a rule concerns, in one line; empty: everybody. */
function whomText({ sites, labels, subjects }: MessageRule): string {
  return [...sites, ...linesOfPairs(labels).split('\n'), ...subjects].filter((text) => text !== '').join(', ');
}

const RULE_FIELDS: readonly FormField[] = [
  {
    name: 'conditions',
    label: 'About',
    hint: 'Nothing chosen: everything.',
    kind: 'some-of',
    load: async () => CONDITION_IDS.map((value) => ({ value, label: CONDITIONS[value].title })),
  },
  { name: 'sites', label: 'Sites', hint: 'Optional: one on each line. Empty: all.', kind: 'lines' },
  {
    name: 'labels',
    label: 'Labels of devices',
    hint: 'Optional: one on each line, such as floor=2. Empty: all devices.',
    kind: 'lines',
  },
  {
    name: 'subjects',
    label: 'Endpoints, domains or devices',
    hint: 'Optional: one on each line; * stands for any text, as in cam*.example.com. Empty: all.',
    kind: 'lines',
  },
  {
    name: 'after',
    member: 'after_minutes',
    label: 'After minutes',
    hint: 'For how long it has to be so.',
    kind: 'number',
    bounds: { min: 1, max: MAX_MINUTES },
  },
  DESTINATIONS_FIELD,
  {
    name: 'quiet',
    member: 'quiet_hours',
    label: 'Quiet hours',
    hint: 'Optional, such as 22:00-07:00 Europe/Berlin. At their end comes one summary.',
    kind: 'text',
  },
  {
    name: 'critical',
    member: 'quiet_critical',
    label: 'What is critical, in quiet hours',
    kind: 'choice',
    options: [
      { value: 'no', label: 'Is sent at once' },
      { value: 'yes', label: 'Waits for their end, too' },
    ],
  },
  {
    name: 'remind',
    member: 'remind_minutes',
    label: 'Reminder after minutes',
    hint: '0: none. Reminders end when somebody acknowledges.',
    kind: 'number',
    bounds: { min: 0, max: MAX_REMINDER },
  },
  ...ANNOTATIONS,
];

const ruleBody = ({
  conditions,
  sites,
  labels,
  subjects,
  after,
  destinations,
  quiet = '',
  critical,
  remind,
}: FormValues) => ({
  ...{
    conditions: textLines(conditions),
    sites: textLines(sites),
    labels: pairsOf(labels),
    subjects: textLines(subjects),
  },
  ...{ after_minutes: Number(after), destination_ids: textLines(destinations), quiet_hours: quiet.trim() },
  ...{ quiet_critical: critical === 'yes', remind_minutes: Number(remind) },
});

/** Who is told of what. */
export const messageRulesSection = resource<MessageRule>(RESOURCES.messageRules, {
  name: 'message-rules',
  title: 'Message rules',
  nameOf: (rule) => rule.description || aboutText(rule),
  columns: [
    { head: 'About', cell: (rule) => <Named name={aboutText(rule)} below={rule.description} /> },
    { head: 'Whom', cell: (rule) => whomText(rule) || 'All' },
    { head: 'After', cell: ({ after_minutes }) => span(after_minutes * 60_000) },
    { head: 'Destinations', cell: ({ destination_ids }) => String(destination_ids.length) },
  ],
  searchTexts: (rule) => [rule.id, aboutText(rule), whomText(rule), rule.description, rule.metadata],
  empty: {
    title: 'Nobody is told when something goes wrong',
    text: 'Create an event destination, such as your email address. Its page offers the usual rules, or write your own here.',
  },
  create: {
    label: 'Create message rule',
    fields: RULE_FIELDS,
    values: { after: '5', remind: '0' },
    body: ruleBody,
  },
  edit: {
    label: 'Edit message rule',
    fields: RULE_FIELDS,
    values: (rule) => ({
      ...{ conditions: rule.conditions.join('\n'), sites: rule.sites.join('\n'), labels: linesOfPairs(rule.labels) },
      ...{ subjects: rule.subjects.join('\n'), after: String(rule.after_minutes), quiet: rule.quiet_hours },
      ...{ destinations: rule.destination_ids.join('\n'), critical: rule.quiet_critical ? 'yes' : 'no' },
      remind: String(rule.remind_minutes),
    }),
    body: ruleBody,
  },
  facts: (rule) => [
    {
      label: 'About',
      value:
        rule.conditions.length === 0 ? 'Everything' : rule.conditions.map((id) => <div key={id}>{titleOf(id)}</div>),
    },
    ...optional('Sites', rule.sites.join(', ')),
    ...(Object.keys(rule.labels).length > 0 ? [{ label: 'Labels', value: <Pairs of={rule.labels} /> }] : []),
    ...optional('Endpoints, domains or devices', rule.subjects.join(', ')),
    { label: 'After', value: span(rule.after_minutes * 60_000) },
    {
      label: 'Sent to',
      value:
        rule.destination_ids.length === 0
          ? 'No destination'
          : rule.destination_ids.map((id) => (
              <div key={id}>
                <ItemLink id={id} />
              </div>
            )),
    },
    ...optional('Quiet hours', rule.quiet_hours),
    ...(rule.quiet_hours === ''
      ? []
      : [{ label: 'What is critical', value: rule.quiet_critical ? 'Waits for their end, too' : 'Is sent at once' }]),
    { label: 'Reminders', value: rule.remind_minutes === 0 ? 'None' : `Every ${span(rule.remind_minutes * 60_000)}` },
  ],
  remove: () => ({
    title: 'Delete this message rule?',
    effects: ['Nobody is told any more by it, also not that something is over.'],
    submit: 'Delete message rule',
  }),
});

function state({ ended_at, severity, silenced_until, acknowledged_at }: ConditionRecord) {
  if (ended_at !== null) return <Badge tone="good">Over</Badge>;
  if (silenced_until !== null && Date.parse(silenced_until) > Date.now()) return <Badge tone="neutral">Silenced</Badge>;
  if (acknowledged_at !== null) return <Badge tone="neutral">Acknowledged</Badge>;
  return severity === 'critical' ? <Badge tone="bad">Critical</Badge> : <Badge tone="warning">Warning</Badge>;
}

const subjectOf = ({ name, site }: ConditionRecord): string =>
  [name, site].filter((text) => text !== null && text !== '' && !name.endsWith(`.${text}`)).join(' at ');

const SILENCES: FormField = {
  name: 'minutes',
  label: 'For how long',
  kind: 'choice',
  options: [
    { value: '60', label: '1 hour' },
    { value: '480', label: '8 hours' },
    { value: '1440', label: '1 day' },
    { value: '10080', label: '7 days' },
    { value: '0', label: 'No longer: send messages again' },
  ],
};

function conditionActions({ id, ended_at, acknowledged_at }: ConditionRecord): Action[] {
  const acknowledge = confirmed({
    ...{ name: 'acknowledge', label: 'Acknowledge', title: 'Acknowledge it?', submit: 'Acknowledge' },
    effects: ['No reminders come until it is over.'],
    isDestructive: false,
    run: () => api('POST', `/condition_history/${id}/acknowledge`),
  });
  const silence = edited({
    ...{ name: 'silence', label: 'Silence', method: 'POST', path: `/condition_history/${id}/silence` },
    form: {
      label: 'Silence',
      fields: [SILENCES],
      values: { minutes: '60' },
      body: ({ minutes }) => ({ minutes: Number(minutes) }),
    },
  });
  return [...(ended_at === null && acknowledged_at === null ? [acknowledge] : []), silence];
}

/** What was wrong, and why somebody was told, or was not. */
export const conditionHistorySection: Section<ConditionRecord> = {
  ...listOf(RESOURCES.conditionHistory),
  name: 'condition-history',
  title: 'Conditions',
  tables: ['condition_history', 'event_deliveries', 'refused_events', 'message_rules'],
  nameOf: (each) => [each.title, subjectOf(each)].filter((text) => text !== '').join(': '),
  columns: [
    { head: 'What', sort: 'condition', cell: (each) => <Named name={each.title} below={subjectOf(each)} /> },
    { head: 'State', cell: state },
    { head: 'Began', sort: 'began_at', cell: ({ began_at }) => <Ago moment={began_at} /> },
    { head: 'Lasted', cell: ({ duration_seconds }) => span(duration_seconds * 1000) },
    { head: 'Messages', cell: ({ told }) => String(told.length) },
  ],
  filters: [
    {
      name: 'open',
      label: 'State',
      options: [
        { value: 'true', label: 'Now' },
        { value: 'false', label: 'Over' },
      ],
    },
    {
      name: 'condition',
      label: 'Condition',
      options: CONDITION_IDS.map((value) => ({ value, label: CONDITIONS[value].title })),
    },
    { name: 'site', label: 'Site' },
    { name: 'subject', label: 'Id or name' },
  ],
  empty: {
    title: 'Nothing was wrong yet',
    text: 'What goes wrong is kept here for 13 months, with who was told, while there is a message rule.',
  },
  facts: (each) => [
    { label: 'State', value: state(each) },
    { label: 'What is wrong', value: each.message },
    { label: 'What to do', value: each.remedy },
    ...optional('Concerns', subjectOf(each)),
    { label: 'Began', value: <Ago moment={each.began_at} /> },
    ...optional('Over', each.ended_at && <Ago moment={each.ended_at} />),
    { label: 'Lasted', value: span(each.duration_seconds * 1000) },
    ...(each.comes_and_goes ? [{ label: 'Comes and goes', value: 'It began several times within an hour.' }] : []),
    ...optional('Acknowledged', each.acknowledged_at && <Ago moment={each.acknowledged_at} />),
    ...optional('Acknowledged by', each.acknowledged_by),
    ...optional('Silenced until', each.silenced_until && <SilencedUntil moment={each.silenced_until} />),
    ...optional('Silenced by', each.silenced_by),
    { label: 'Who was told, and why not', value: each.reasons.map((reason) => <div key={reason}>{reason}</div>) },
  ],
  actions: conditionActions,
};
