import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import { body, COMMON_ANSWER, defineResource, listFilters, orNull, Ref, UTC } from './resource.ts';

/** The longest time for which a condition can be silenced. */
const MAX_SILENCE_MINUTES = 30 * 24 * 60;

const Told = z
  .object({
    rule: orNull(Ref).describe('The rule by which it was told; null when that is deleted.'),
    destination: orNull(Ref).describe('Where the message went; null when that is deleted.'),
    kind: z.string().describe('What the message said of it: `begun`, `over` or `reminder`.'),
    at: z.string().describe(`When it was handed to the destination's queue. ${UTC}`),
    message_id: z.string().describe('The id of the message, which its receiver gets, too.'),
    delivery: z
      .enum(['delivered', 'waiting', 'refused', 'unknown'])
      .describe('Whether the destination has taken it; `unknown` when the destination is deleted.'),
    error: orNull(z.string()).describe('Why the destination does not take it; null while it does.'),
  })
  .describe('A message about it.');

export const ConditionRecord = z
  .object({
    ...COMMON_ANSWER,
    condition: z.string().describe('What is wrong, such as `device_offline`.'),
    title: z.string().describe('The same in words.'),
    subject: z.string().describe('The id or name of what it concerns; empty: the gateway.'),
    name: z.string().describe('What people call that.'),
    site: orNull(z.string()).describe('The site of that; null without one.'),
    severity: z.string().describe('`critical` or `warning`.'),
    message: z.string().describe('What was wrong, with details.'),
    remedy: z.string().describe('What to do.'),
    began_at: z.string().describe(`Since when it is so. ${UTC}`),
    ended_at: orNull(z.string()).describe(`Until when it was so; null while it is. ${UTC}`),
    duration_seconds: z.int().describe('How long it was so, or is by now.'),
    comes_and_goes: z.boolean().describe('Whether it began several times within an hour, which is told once.'),
    acknowledged_at: orNull(z.string()).describe(`When somebody has acknowledged it: no reminders come since. ${UTC}`),
    acknowledged_by: orNull(z.string()).describe('Who did: the id of an API key or person, or `link`.'),
    silenced_until: orNull(z.string()).describe(`Until when no messages about it are sent; null: they are. ${UTC}`),
    silenced_by: orNull(z.string()).describe('Who wanted that: the id of an API key or person, or `link`.'),
    told: z.array(Told).describe('Who was told, the first message first.'),
    reasons: z.array(z.string()).describe('For each rule, in words: who was told when, or why nobody was.'),
  })
  .describe('Something that was wrong, for how long, and who was told. Kept for 13 months, at most 100,000.');
export type ConditionRecord = z.output<typeof ConditionRecord>;

export const ConditionFilters = listFilters(
  'id, what is wrong, name, site, message or remedy',
  ['name', 'condition', 'began_at', 'ended_at'],
  {
    open: z
      .enum(['true', 'false'])
      .optional()
      .meta({ description: '`true`: what is wrong now; `false`: what is over.' }),
    condition: z.string().max(100).optional().meta({ description: 'One condition, such as `device_offline`.' }),
    subject: z.string().max(500).optional().meta({ description: 'The id or name of what it concerns.' }),
    site: z.string().max(253).optional().meta({ description: 'One site.' }),
  },
);
export type ConditionFilters = z.output<typeof ConditionFilters>;

export const conditionHistory = defineResource({
  name: 'condition',
  path: '/condition_history',
  idPrefix: 'cnd_',
  table: 'condition_history',
  answer: ConditionRecord,
  filters: ConditionFilters,
});

export const ConditionSilence = body({
  minutes: z
    .int()
    .min(0)
    .max(MAX_SILENCE_MINUTES, refused(WRONG_VALUE, `is more than ${MAX_SILENCE_MINUTES}, which is 30 days`))
    .describe('For how long no messages about it are sent, also when it begins again; 0: they are sent again.'),
});
export type ConditionSilence = z.input<typeof ConditionSilence>;
