import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { durationText } from '../../lib/terminal-text.ts';
import type { ManagementClient } from '../../management/client.ts';
import type { ConditionRecord } from '../../management/resources/condition.ts';
import type { MessageRule, MessageRuleUpdate } from '../../management/resources/message-rule.ts';
import { usualRules } from '../../management/usual-rules.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, show, table } from '../output.ts';
import { withGateway } from './running-gateway.ts';

interface JsonOption {
  json?: boolean;
}

const MINUTE_MS = 60_000;
/** Conditions that a list has at most. */
const MAX_LISTED = 200;

export interface RuleChoice extends JsonOption {
  condition?: string[];
  site?: string[];
  label?: string[];
  subject?: string[];
  /** Milliseconds. */
  after?: number;
  to?: string[];
  quiet?: string;
  quietCritical?: boolean;
  /** Milliseconds. */
  remind?: number;
  description?: string;
}

export async function listRules(settings: GatewayServerSettings, { json }: JsonOption): Promise<void> {
  const all = await withGateway(settings, (client) => collected(client.messageRules.all()));
  if (json) return void print(jsonText(all));
  if (all.length === 0)
    return void note(`No rules: nobody is told. Add some with: ${ownCommand('gateway rules usual <destination>')}`);
  print(table(['ID', 'ABOUT', 'WHOM', 'AFTER', 'TO', 'QUIET', 'DESCRIPTION'], all.map(ruleLine)));
}

function ruleLine(rule: MessageRule): string[] {
  const { id, conditions, sites, labels, subjects, after_minutes, destination_ids, quiet_hours, description } = rule;
  const whom = [...sites, ...Object.entries(labels).map((pair) => pair.join('=')), ...subjects];
  return [
    ...[id, conditions.join(', ') || 'everything', whom.join(', ') || 'all', `${after_minutes} min`],
    ...[destination_ids.join(', ') || 'nobody', quiet_hours || 'never', description ?? ''],
  ];
}

/** Adds the rules that suit most gateways. @throws {OperatorError} exit code 4 for an unknown id */
export async function addUsualRules(settings: GatewayServerSettings, id: string, { json }: JsonOption): Promise<void> {
  requireId(id, 'ed_', 'destination', 'gateway destinations');
  const made = await withGateway(settings, (client) => createUsualRules(client, id));
  show(made, { json }, (rules) => rules.map((rule) => `${rule.id} added: ${rule.description}`).join('\n'));
}

export async function createUsualRules(client: ManagementClient, destinationId: string): Promise<MessageRule[]> {
  const rules: MessageRule[] = [];
  for (const rule of usualRules(destinationId)) rules.push(await client.messageRules.create(rule));
  return rules;
}

export async function addRule(settings: GatewayServerSettings, options: RuleChoice): Promise<void> {
  const made = await withGateway(settings, (client) => client.messageRules.create(ruleBody(options)));
  show(made, options, ({ id }) => `${id} added`);
}

/** @throws {OperatorError} exit code 4 for an unknown id */
export async function setRule(settings: GatewayServerSettings, id: string, options: RuleChoice): Promise<void> {
  requireId(id, 'mr_', 'rule', 'gateway rules');
  const rule = await withGateway(settings, (client) => client.messageRules.update(id, ruleBody(options)));
  show(rule, options, () => `${id} changed`);
}

/** @throws {OperatorError} exit code 4 for an unknown id */
export async function removeRule(settings: GatewayServerSettings, id: string): Promise<void> {
  requireId(id, 'mr_', 'rule', 'gateway rules');
  await withGateway(settings, (client) => client.messageRules.delete(id));
  print(`${id} removed`);
}

function ruleBody(options: RuleChoice): MessageRuleUpdate {
  const { condition, site, label, subject, after, to, quiet, quietCritical, remind, description } = options;
  const labels = label?.map((pair): [string, string] => {
    const at = pair.indexOf('=');
    if (at < 1) throw new OperatorError(`--label ${pair}: write it as name=value`, 2);
    return [pair.slice(0, at), pair.slice(at + 1)];
  });
  return {
    // Which there are, the gateway knows.
    ...(condition && { conditions: condition as NonNullable<MessageRuleUpdate['conditions']> }),
    ...(site && { sites: site }),
    ...(labels && { labels: Object.fromEntries(labels) }),
    ...(subject && { subjects: subject }),
    ...(after !== undefined && { after_minutes: Math.ceil(after / MINUTE_MS) }),
    ...(to && { destination_ids: to }),
    ...(quiet !== undefined && { quiet_hours: quiet }),
    ...(quietCritical !== undefined && { quiet_critical: quietCritical }),
    ...(remind !== undefined && { remind_minutes: Math.ceil(remind / MINUTE_MS) }),
    ...(description !== undefined && { description }),
  };
}

interface ConditionChoice extends JsonOption {
  open?: boolean;
  condition?: string;
  site?: string;
}

export async function listConditions(settings: GatewayServerSettings, options: ConditionChoice): Promise<void> {
  const { open, condition, site, json } = options;
  const filters = { ...(open && { open: 'true' as const }), ...(condition && { condition }), ...(site && { site }) };
  const all = await withGateway(settings, (client) => collected(client.conditionHistory.all({ filters }), MAX_LISTED));
  if (json) return void print(jsonText(all));
  if (all.length === 0) return void note(open ? 'Nothing is wrong.' : 'Nothing was wrong while there was a rule.');
  const rows = all.map(({ id, condition: what, name, site: of, began_at, duration_seconds, ended_at, told }) => [
    ...[id, what, [name, of].filter(Boolean).join(' at '), began_at, durationText(duration_seconds)],
    ...[ended_at === null ? 'now' : 'over', String(told.length)],
  ]);
  print(table(['ID', 'CONDITION', 'OF', 'BEGAN', 'LASTED', 'STATE', 'MESSAGES'], rows));
}

/** @throws {OperatorError} exit code 4 for an unknown id */
export function showCondition(settings: GatewayServerSettings, id: string, options: JsonOption): Promise<void> {
  return withCondition(settings, id, options, (client) => client.conditionHistory.get(id));
}

/** @throws {OperatorError} exit code 4 for an unknown id */
export function acknowledgeCondition(settings: GatewayServerSettings, id: string, options: JsonOption): Promise<void> {
  return withCondition(settings, id, options, (client) => client.conditionHistory.acknowledge(id));
}

/** @throws {OperatorError} exit code 4 for an unknown id */
export function silenceCondition(
  settings: GatewayServerSettings,
  id: string,
  { for: ms, json }: JsonOption & { for: number },
): Promise<void> {
  const minutes = Math.ceil(ms / MINUTE_MS);
  return withCondition(settings, id, { ...(json && { json }) }, (client) =>
    client.conditionHistory.silence(id, { minutes }),
  );
}

async function withCondition(
  settings: GatewayServerSettings,
  id: string,
  options: JsonOption,
  ask: (client: ManagementClient) => Promise<ConditionRecord>,
): Promise<void> {
  requireId(id, 'cnd_', 'condition', 'gateway conditions');
  show(await withGateway(settings, ask), options, conditionText);
}

function conditionText(condition: ConditionRecord): string {
  const { title, name, site, message, remedy, began_at, ended_at, duration_seconds, silenced_until, reasons } =
    condition;
  const subject = [name, site].filter(Boolean).join(' at ');
  const state = ended_at === null ? 'now' : `until ${ended_at}`;
  return [
    subject === '' ? title : `${title}: ${subject}`,
    `from ${began_at} ${state}, ${durationText(duration_seconds)}`,
    ...[message, remedy],
    ...(condition.acknowledged_at
      ? [`acknowledged at ${condition.acknowledged_at} by ${condition.acknowledged_by}`]
      : []),
    ...(silenced_until ? [`silenced until ${silenced_until} by ${condition.silenced_by}`] : []),
    ...reasons,
  ].join('\n');
}

/** @throws {OperatorError} exit code 4 when a text is no such id */
export function requireId(id: string, prefix: string, what: string, command: string): void {
  if (!new RegExp(`^${prefix}\\w+$`).test(id))
    throw new OperatorError(`no ${what} has this id: ${ownCommand(command)} lists them`, 4);
}

export async function collected<T>(all: AsyncIterable<T>, most = Number.POSITIVE_INFINITY): Promise<T[]> {
  const found: T[] = [];
  for await (const each of all) {
    if (found.length >= most) break;
    found.push(each);
  }
  return found;
}
