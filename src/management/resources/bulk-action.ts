import { z } from 'zod';
import { DeviceFilters } from './device.ts';
import { deviceLabels } from './enrolment.ts';
import { refused, WRONG_VALUE } from './refusal.ts';
import { body, COMMON_ANSWER, defineResource, idOf, listFilters, orNull, stateFilter, text, UTC } from './resource.ts';

/** What can be done with many devices at once. */
const BULK_ACTIONS = ['label', 'approve', 'rotate', 'revoke', 'delete', 'restart', 'disconnect'] as const;
export type BulkActionName = (typeof BULK_ACTIONS)[number];

/** Devices of one bulk action at most. */
export const MAX_BULK = 20_000;
/** Failures that an answer has. */
export const MAX_FAILURES = 1_000;

const { sort: _, after: __, ...filters } = DeviceFilters.shape;

const members = {
  action: z
    .enum(BULK_ACTIONS, refused(WRONG_VALUE, `must be one of ${BULK_ACTIONS.join(', ')}`))
    .describe(
      'What is done with each device: `label` changes labels; `approve`, `rotate`, `revoke` and `delete` are as for one device; `restart` asks its agent to restart; `disconnect` ends its sessions, and its agent connects again.',
    ),
  device_ids: z
    .array(idOf(['dev_'], WRONG_VALUE))
    .min(1, refused(WRONG_VALUE, 'is empty'))
    .max(MAX_BULK, refused(WRONG_VALUE, `has more than ${MAX_BULK} devices`))
    .optional()
    .describe('These devices. Either this or `filter` is required.'),
  filter: z
    .strictObject(filters)
    .optional()
    .describe('All devices for which these hold now, as in lists of devices; `{}`: all devices.'),
  labels: deviceLabels.optional().describe('For `label`: labels that the devices get; others stay.'),
  remove_labels: z.array(text(64)).max(20).optional().describe('For `label`: names of labels that the devices lose.'),
};

export const BulkCount = body(members);
export type BulkCount = z.input<typeof BulkCount>;

export const BulkActionCreate = body({
  ...members,
  expected_devices: z
    .int()
    .min(0)
    .optional()
    .describe('How many devices were counted before. If they are not so many now, nothing is done.'),
});
export type BulkActionCreate = z.input<typeof BulkActionCreate>;

export const BulkCounted = z
  .object({
    devices: z.int().describe('How many devices there are.'),
    online: z.int().describe('How many of them are online.'),
    unfit: z.int().describe('For how many the action fails as they are now, such as `restart` for those offline.'),
    names: z.array(z.string()).describe('Names of the first ten.'),
  })
  .describe('What a bulk action would be about now.');
export type BulkCounted = z.output<typeof BulkCounted>;

const Failure = z
  .object({
    device_id: z.string().describe('The id of the device.'),
    name: z.string().describe('Its name.'),
    reason: z.string().describe('Why it failed.'),
  })
  .describe('A device for which it failed.');

export const BulkAction = z
  .object({
    ...COMMON_ANSWER,
    action: z.enum(BULK_ACTIONS).describe('What is done with each device.'),
    state: z
      .enum(['running', 'finished', 'cancelled'])
      .describe('`running`: also while the gateway is restarted, after which it goes on.'),
    devices: z.int().describe('How many devices were chosen.'),
    done: z.int().describe('For how many it is done.'),
    failed: z.int().describe('For how many it failed.'),
    left: z.int().describe('How many devices have not had their turn.'),
    failures: z.array(Failure).describe(`For which it failed, and why; at most ${MAX_FAILURES}. Empty in lists.`),
    labels: orNull(z.record(z.string(), z.string())).describe('Of `label`: what the devices get.'),
    remove_labels: orNull(z.array(z.string())).describe('Of `label`: what they lose.'),
    filter: orNull(z.record(z.string(), z.string())).describe('What has chosen the devices; null: their ids.'),
    by: z.string().describe('The id of an API key or person; `gateway` for a command.'),
    finished_at: orNull(z.string()).describe(`When it ended; null while it runs. ${UTC}`),
    end_reason: orNull(z.string()).describe('Why it was cancelled; null when it was not.'),
  })
  .describe('Something that is done with many devices, one after another. Kept for 90 days.');
export type BulkAction = z.output<typeof BulkAction>;

export const BulkActionFilters = listFilters('id, action, labels, filter or who began it', ['action', 'state'], {
  state: stateFilter(['running', 'finished', 'cancelled'], 'Whether it goes on.'),
});
export type BulkActionFilters = z.output<typeof BulkActionFilters>;

export const bulkActions = defineResource({
  name: 'bulk action',
  path: '/bulk_actions',
  idPrefix: 'blk_',
  answer: BulkAction,
  filters: BulkActionFilters,
});
