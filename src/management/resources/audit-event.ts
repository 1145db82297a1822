import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import { COMMON_ANSWER, defineResource, orNull, searchFilter } from './resource.ts';

const name = z.string().max(100, refused(WRONG_VALUE, 'is longer than 100 characters')).optional();
const time = z.iso
  .datetime({ offset: true, error: refused(WRONG_VALUE, 'must be a time such as 2026-11-26T00:00:00Z') })
  .transform((text) => new Date(text).toISOString())
  .optional();

/** What a list of changes can be limited to. */
export const AuditFilters = z.strictObject({
  search: searchFilter(
    'type, members before and after, object, address, or who made the change; a page may have fewer items than `limit`, even none',
  ),
  type: name.meta({ description: 'A type such as `domain_created.v0`, or a kind such as `domain`.' }),
  object_id: name.meta({ description: 'The id of what was changed.' }),
  by: name.meta({
    description: 'The id of an API key or person; `gateway`: commands; `device`: devices that join or leave.',
  }),
  since: time.meta({ description: 'RFC 3339: changes from then on.' }),
  until: time.meta({ description: 'RFC 3339: changes before then.' }),
  part_of: name.meta({
    description: 'The id of a bulk action: its changes, which are left out without this, `object_id` or `search`.',
  }),
});
export type AuditFilters = z.output<typeof AuditFilters>;

const values = orNull(z.record(z.string(), z.unknown()));

export const AuditEvent = z
  .object({
    ...COMMON_ANSWER,
    type: z.string().describe('For example `domain_created.v0`, `domain_updated.v0` or `domain_deleted.v0`.'),
    object_id: z.string().describe('The id of what was changed. It may no longer exist.'),
    by: z
      .string()
      .describe(
        'The id of an API key or person; `gateway` for a command or a link that names nobody, `device` for a device that joins or leaves.',
      ),
    by_description: orNull(z.string()).describe(
      'The description of that API key, or name and email address of that person; null without one.',
    ),
    from_address: orNull(z.string()).describe(
      "The address that the change came from; null for a command on the gateway's machine.",
    ),
    part_of: orNull(z.string()).describe('The id of the bulk action that the change is a part of; null: of none.'),
    before: values.describe('Members before the change, without secrets; null when it was created.'),
    after: values.describe('Members after the change; null when it was deleted.'),
    policy_difference: z
      .string()
      .optional()
      .describe(
        'What has changed in the traffic policy, as `diff -u` shows it for YAML, with secrets masked; empty: only its layout. Left out in lists, and when its policy has not changed.',
      ),
  })
  .describe('Who has changed what; for 90 days.');
export type AuditEvent = z.output<typeof AuditEvent>;

export const auditEvents = defineResource({
  name: 'audit event',
  path: '/audit_events',
  idPrefix: 'evt_',
  table: 'audit_log',
  eventName: null,
  answer: AuditEvent,
  filters: AuditFilters,
});
