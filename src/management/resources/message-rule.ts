import { z } from 'zod';
import { CONDITION_IDS, type ConditionId } from '../condition-kinds.ts';
import { deviceLabels } from './enrolment.ts';
import { type Refusal, refused, WRONG_VALUE } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  areDistinct,
  body,
  COMMON_ANSWER,
  defineResource,
  idOf,
  parsed,
  text,
} from './resource.ts';

const MAX_NAMES = 100;
const MAX_DESTINATIONS = 10;
const MAX_MINUTES = 7 * 24 * 60;
const MAX_REMINDER = 30 * 24 * 60;
const QUIET = /^(?:([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)(?: ([A-Za-z0-9_+/-]{1,64}))?)?$/;

/** Hours of a day in which nobody wants messages. */
export interface QuietHours {
  /** Minutes since midnight. */
  readonly from: number;
  readonly to: number;
  readonly timeZone: string;
}

/** @returns null for an empty text @throws RangeError for another form, or a time zone that is unknown */
export function parseQuietHours(written: string): QuietHours | null {
  const found = QUIET.exec(written);
  if (found === null) throw new RangeError('not of the form 22:00-07:00 Europe/Berlin');
  const [, fromHour, fromMinute, toHour, toMinute, timeZone = 'UTC'] = found;
  if (fromHour === undefined) return null;
  new Intl.DateTimeFormat('en', { timeZone });
  const minutes = (hour: string | undefined, minute: string | undefined) => Number(hour) * 60 + Number(minute);
  return { from: minutes(fromHour, fromMinute), to: minutes(toHour, toMinute), timeZone };
}

function checkedQuietHours(written: string): string | Refusal {
  try {
    parseQuietHours(written);
    return written;
  } catch {
    const text = 'must be two times and a time zone, such as 22:00-07:00 Europe/Berlin, or empty';
    return { code: WRONG_VALUE, text };
  }
}

const names = (what: string, length: number) =>
  z
    .array(text(length))
    .max(MAX_NAMES, refused(WRONG_VALUE, `more than ${MAX_NAMES}`))
    .describe(what);

const CONDITION_LIST = 'What it is about, such as `device_offline`; empty: everything.';
const SITES = 'Only what belongs to one of these sites; empty: to any, or none.';
const LABELS = 'Only devices with all of these labels, and their endpoints; empty: with any.';
const ENDPOINTS =
  'Only what concerns one of these: hostnames or URLs of endpoints, domains, ids or names of devices; `*` stands for any text. Empty: anything.';
const AFTER = 'For how many minutes it has to be so before a message is sent; by default 5.';
const DESTINATIONS = `The ids of the event destinations that get the messages, at most ${MAX_DESTINATIONS}.`;
const QUIET_HOURS =
  'When no messages are sent, as `22:00-07:00 Europe/Berlin`; at their end comes one summary. Without a time zone: UTC. Empty: never.';
const QUIET_CRITICAL = 'Whether messages about what is critical wait for the end of the quiet hours, too.';
const REMIND = 'After how many minutes a reminder is sent while nobody has acknowledged it; 0: never.';

const conditions = z
  .array(z.enum(CONDITION_IDS as [ConditionId, ...ConditionId[]]))
  .max(CONDITION_IDS.length)
  .refine(areDistinct, refused(WRONG_VALUE, 'has a condition twice'))
  .describe(CONDITION_LIST);
const after = z.int().min(1).max(MAX_MINUTES).describe(AFTER);
const remind = z
  .int()
  .max(MAX_REMINDER)
  .refine((minutes) => minutes === 0 || minutes >= 10, refused(WRONG_VALUE, 'must be 0, or at least 10'))
  .describe(REMIND);
const quiet = parsed(checkedQuietHours, WRONG_VALUE, QUIET).describe(QUIET_HOURS);
const destinations = z
  .array(idOf(['ed_'], 227))
  .max(MAX_DESTINATIONS, refused(WRONG_VALUE, `more than ${MAX_DESTINATIONS} destinations`))
  .describe(DESTINATIONS);

const MEMBERS = {
  conditions,
  sites: names(SITES, 253),
  labels: deviceLabels.describe(LABELS),
  subjects: names(ENDPOINTS, 500),
  after_minutes: after,
  destination_ids: destinations,
  quiet_hours: quiet,
  quiet_critical: z.boolean().describe(QUIET_CRITICAL),
  remind_minutes: remind,
};

export const MessageRuleCreate = body({
  ...annotations(),
  conditions: conditions.default([]),
  sites: MEMBERS.sites.default([]),
  labels: MEMBERS.labels.default({}),
  subjects: MEMBERS.subjects.default([]),
  after_minutes: after.default(5),
  destination_ids: destinations.default([]),
  quiet_hours: quiet.default(''),
  quiet_critical: MEMBERS.quiet_critical.default(false),
  remind_minutes: remind.default(0),
});
export type MessageRuleCreate = z.input<typeof MessageRuleCreate>;

export const MessageRuleUpdate = body({ ...annotations(), ...MEMBERS }).partial();
export type MessageRuleUpdate = z.input<typeof MessageRuleUpdate>;

export const MessageRule = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    conditions: z.array(z.string()).describe(CONDITION_LIST),
    sites: z.array(z.string()).describe(SITES),
    labels: z.record(z.string(), z.string()).describe(LABELS),
    subjects: z.array(z.string()).describe(ENDPOINTS),
    after_minutes: z.int().describe(AFTER),
    destination_ids: z.array(z.string()).describe(DESTINATIONS),
    quiet_hours: z.string().describe(QUIET_HOURS),
    quiet_critical: z.boolean().describe(QUIET_CRITICAL),
    remind_minutes: z.int().describe(REMIND),
  })
  .describe('Who is notified of which conditions, and when.');
export type MessageRule = z.output<typeof MessageRule>;

export const messageRules = defineResource({
  name: 'message rule',
  path: '/message_rules',
  idPrefix: 'mr_',
  create: MessageRuleCreate,
  update: MessageRuleUpdate,
  answer: MessageRule,
  row: MessageRule,
});
