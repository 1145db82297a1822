import { type MessageRule, parseQuietHours, type QuietHours } from '../../management/resources/message-rule.ts';
import type { ConditionRow } from '../store/condition-history.ts';

type Rule = Pick<
  MessageRule,
  'conditions' | 'sites' | 'labels' | 'subjects' | 'quiet_hours' | 'quiet_critical' | 'destination_ids'
>;
type Concerned = Pick<ConditionRow, 'condition' | 'subject' | 'name' | 'site' | 'labels'>;

/** Why a rule does not concern something, in words; null: it does. */
export function whyNotConcerned(rule: Rule, concerned: Concerned): string | null {
  const { condition, site, labels } = concerned;
  if (rule.conditions.length > 0 && !rule.conditions.includes(condition)) return `it is not about ${condition}`;
  if (rule.sites.length > 0 && (site === null || !rule.sites.includes(site)))
    return `it is for other sites than ${site ?? 'none'}`;
  const other = Object.entries(rule.labels).find(([name, value]) => labels[name] !== value);
  if (other) return `it is for devices with the label ${other.join('=')}`;
  if (rule.subjects.length > 0 && !rule.subjects.some((pattern) => isNamed(pattern, concerned)))
    return 'it is for other endpoints or devices';
  return null;
}

/** Whether a pattern names something: by its id, name or URL, or by the host of that. */
function isNamed(pattern: string, { subject, name, site }: Concerned): boolean {
  const host = URL.canParse(name) ? [new URL(name).hostname, new URL(name).host] : [];
  const parts = pattern.split('*').map((part) => part.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'));
  const expression = new RegExp(`^${parts.join('.*')}$`, 'i');
  return [subject, name, ...host, ...(site === null ? [] : [`${name}.${site}`])].some((text) => expression.test(text));
}

/** Whether a rule wants no messages at a moment. @param at milliseconds since the Unix epoch */
export function isQuiet(rule: Pick<Rule, 'quiet_hours' | 'quiet_critical'>, severity: string, at: number): boolean {
  const hours = quietHoursOf(rule);
  if (hours === null || (severity === 'critical' && !rule.quiet_critical)) return false;
  const { from, to } = hours;
  const minute = minuteOfDay(at, hours.timeZone);
  return from <= to ? minute >= from && minute < to : minute >= from || minute < to;
}

/** What was stored was valid; with another version of Node.js, a time zone may be unknown. */
function quietHoursOf({ quiet_hours }: Pick<Rule, 'quiet_hours'>): QuietHours | null {
  try {
    return parseQuietHours(quiet_hours);
  } catch {
    return null;
  }
}

function minuteOfDay(at: number, timeZone: string): number {
  const format = new Intl.DateTimeFormat('en', { timeZone, hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
  const parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
  return (parts.hour ?? 0) * 60 + (parts.minute ?? 0);
}

/** The time zone in which a rule's messages say times. */
export function timeZoneOf(rule: Pick<Rule, 'quiet_hours'>): string {
  return quietHoursOf(rule)?.timeZone ?? 'UTC';
}
