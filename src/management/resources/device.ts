import { z } from 'zod';
import { deviceLabels } from './enrolment.ts';
import { type Refusal, WRONG_VALUE } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  body,
  COMMON_ANSWER,
  defineResource,
  labelFilter,
  listFilters,
  orNull,
  parsed,
  Ref,
  siteFilter,
  stateFilter,
  UTC,
  versionFilter,
} from './resource.ts';

/** Where agents say which CAs they trust, with their authtoken. */
export const AGENT_CAS_PATH = '/agent_cas';

/** Leaves room for a label before it: `camera-<name>` is one label of at most 63 characters. */
export const LONGEST_NAME = 40;
/** Every device name has this form. */
const DEVICE_NAME = /^[a-z0-9]+(-[a-z0-9]+)*$/;

/**
 * The device name closest to a text, such as a hostname: lower case, with hyphens for all other characters; else `device`.
 */
export function deviceName(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-/, '')
    .slice(0, LONGEST_NAME)
    .replace(/-$/, '');
  return name === '' ? 'device' : name;
}

function parseName(text: string): string | Refusal {
  const name = text.toLowerCase();
  if (name.length <= LONGEST_NAME && DEVICE_NAME.test(name)) return name;
  return {
    code: WRONG_VALUE,
    text: `must be letters, digits and single hyphens between them, at most ${LONGEST_NAME} characters`,
  };
}

/** How many names directly below the site an operator can give to one device. */
const MAX_PLAIN_NAMES = 100;
const LABEL = /^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$/;

function parseLabel(text: string): string | Refusal {
  if (text.length <= 63 && LABEL.test(text)) return text.toLowerCase();
  return { code: WRONG_VALUE, text: 'must be letters, digits and single hyphens between them, at most 63 characters' };
}

const OWN_NAMES_ONLY = 'Whether it gets no further names directly below the site by asking for them.';
const INTERNAL_NAMES = 'Whether it may also bind internal endpoints at `*-<name>.<site>.internal`.';

const LINK_SETTING =
  'Whether its link is metered, such as a SIM card; its agent follows at once. `device`: as AGENT_LINK on the device says.';
const linkSetting = z.enum(['device', 'default', 'metered']);

export const DeviceUpdate = body({
  ...annotations(),
  name: parsed(parseName, WRONG_VALUE, /^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$/)
    .optional()
    .describe('A new name; the device takes it when it joins again, and keeps its old names until then.'),
  labels: deviceLabels.optional().describe('Replaces all labels.'),
  plain_names: z
    .array(parsed(parseLabel, WRONG_VALUE, LABEL))
    .max(MAX_PLAIN_NAMES)
    .optional()
    .describe(
      'Replaces the labels of its names directly below the site. The device does not get those left out again, but others can.',
    ),
  own_names_only: z.boolean().optional().describe(OWN_NAMES_ONLY),
  internal_names: z.boolean().optional().describe(INTERNAL_NAMES),
  link_setting: linkSetting.optional().describe(LINK_SETTING),
});
export type DeviceUpdate = z.input<typeof DeviceUpdate>;

/** What a list of devices can be limited to, and sorted by. */
export const DeviceFilters = listFilters(
  'id, name, site, labels, description, version or address',
  ['name', 'site', 'state', 'last_seen_at', 'agent_version'],
  {
    state: stateFilter(
      ['online', 'offline', 'away', 'never', 'pending', 'revoked'],
      '`offline`: was online before; `away`: is offline by plan, for its data budget; `never`: has joined, and was not online yet.',
    ),
    site: siteFilter('devices'),
    label: labelFilter('the device'),
    version: versionFilter('devices whose agent'),
  },
);
export type DeviceFilters = z.output<typeof DeviceFilters>;

const DeviceTunnel = z.object({
  public_url: orNull(z.string()).describe(
    'The URL of the tunnel; null for a labelled tunnel, which has none of its own.',
  ),
  forwards_to: z.string().describe('The upstream, as the agent names it.'),
  started_at: z.string().describe(`Since when it is online. ${UTC}`),
  unreachable: orNull(z.string()).describe(
    'What keeps clients away from it, as a gateway has found that asks it as they do; null: nothing that is known.',
  ),
});

/** What a device has used of its data budget, the least first. */
export const BUDGET_STATES = ['normal', 'low', 'paused', 'away'] as const;

const ReportedBudget = z
  .object({
    state: z
      .enum(BUDGET_STATES)
      .describe(
        '`low`: 80 % is used; `paused`: 95 %, so that tunnels answer 503; `away`: the device is offline by plan, and comes back at `back_at`.',
      ),
    used_percent: z.number().describe('How much of it is used, as the device has said last; it does for every 5 %.'),
    limit_bytes: orNull(z.number()).describe('What it may send and receive; null: its agent does not say.'),
    ends_at: orNull(z.string()).describe(`When the period ends; null: its agent does not say. ${UTC}`),
    back_at: orNull(z.string()).describe(`When it comes back; null: it is not away for its budget. ${UTC}`),
  })
  .describe('What its agent says of AGENT_DATA_BUDGET.');
export type ReportedBudget = z.output<typeof ReportedBudget>;

const DeviceEvent = z.object({
  at: z.string().describe(`When it happened. ${UTC}`),
  what: z
    .string()
    .describe(
      'What happened: `requested`, `approved`, `enrolled`, `joined again`, `renewed`, `renamed`, `moved`, `rotated` or `revoked`.',
    ),
  by: z.string().describe('The address of the device, or the id of the API key.'),
});

export const Device = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    name: z.string().describe('The name of the device, unique at its site.'),
    site: z.string().describe('The domain of the site, without the wildcard.'),
    domain: z.string().describe('Where its API is reachable: `agent-<name>.<site>`.'),
    status: z
      .enum(['pending', 'enrolled', 'revoked'])
      .describe('`pending`: waits for an approval; `revoked`: has lost its authtoken for good.'),
    labels: z.record(z.string(), z.string()).describe('Labels that operators have given it.'),
    plain_names: z
      .array(z.string())
      .describe('The labels of its names directly below the site, such as `camera` for `camera.<site>`.'),
    own_names_only: z.boolean().describe(OWN_NAMES_ONLY),
    internal_names: z.boolean().describe(INTERNAL_NAMES),
    tcp_ports: orNull(z.string()).describe('TCP ports that it may bind, for example `20000-20099`; null: none.'),
    owner_id: z.string().describe('The bot user that owns its authtoken.'),
    enrolment_key: orNull(Ref).describe('The key with which it joined; null when that is deleted.'),
    credential: orNull(Ref).describe('Its authtoken; null while it has none.'),
    rotation_pending: z.boolean().describe('Whether its authtoken ended and it has not fetched another one yet.'),
    online_since: orNull(z.string()).describe(`Since when it has a session; null while it is offline. ${UTC}`),
    last_seen_at: orNull(z.string()).describe(
      `When it was last online, right to 10 s, also after a crash of the gateway; null when it never was. ${UTC}`,
    ),
    ip: orNull(z.string()).describe('The address of its last session; null when it was never online.'),
    agent_version: orNull(z.string()).describe(
      'The program and version of its agent in its last session; null when it was never online.',
    ),
    link_setting: linkSetting.describe(LINK_SETTING),
    link: orNull(z.enum(['default', 'metered'])).describe(
      'What its link is for its agent: [as for a SIM card](sim-card.md), or not. Null: it does not say.',
    ),
    data_budget: orNull(ReportedBudget).describe('What it has used of its data budget; null: it has none.'),
    trusted_cas: orNull(z.array(z.string())).describe(
      'The gateway’s own CAs that it trusts, by their ids, as it has last said; null when it has not said so.',
    ),
    tunnels: z.array(DeviceTunnel).describe('Tunnels that are online.'),
    history: z
      .array(DeviceEvent)
      .describe('What happened to it, oldest first: when, what, and from which address or by which API key.'),
  })
  .describe('A device that has joined with an enrolment key.');
export type Device = z.output<typeof Device>;

export const devices = defineResource({
  name: 'device',
  path: '/devices',
  idPrefix: 'dev_',
  update: DeviceUpdate,
  shown: { ip: 'Address', agent_version: 'Version' },
  answer: Device,
  filters: DeviceFilters,
});
