import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import { body, orNull, text } from './resource.ts';

/** Where agents ask about updates, and say what has become of them; the authtoken is in the body. */
export const AGENT_UPDATES_PATH = '/agent_updates';
/** Where agents fetch releases, with the authtoken as `Authorization: Bearer`; names of files follow. */
export const RELEASES_PATH = '/releases';

const version = z.string().regex(/^[0-9A-Za-z.-]{1,60}$/, refused(WRONG_VALUE, 'must be a version such as 1.2.3'));

export const AgentUpdateReport = body({
  authtoken: z.string().max(256),
  version: version.describe('The version that the device goes to.'),
  state: z
    .enum(['wanted', 'started', 'confirmed', 'returned'])
    .describe(
      '`wanted`: asks before the download; `started`: asks right before the switch; `confirmed`: the device stays on the version; `returned`: it went back.',
    ),
  reason: text(1000, WRONG_VALUE, 'Why it went back.').optional(),
});
export type AgentUpdateReport = z.output<typeof AgentUpdateReport>;

export const AgentUpdateAnswer = z.object({
  decision: z
    .enum(['go', 'wait', 'stop'])
    .describe('`wait`: ask again after `retry_after_s`; `stop`: not before an operator allows it again.'),
  reason: orNull(z.string()).describe('Why the device has to wait.'),
  retry_after_s: orNull(z.int()),
});
export type AgentUpdateAnswer = z.output<typeof AgentUpdateAnswer>;
