import { z } from 'zod';
import { parsePortRange } from '../../lib/network/port-range.ts';
import { ownerId } from './credential.ts';
import { parseHostname } from './hostname.ts';
import { type Refusal, refused, WRONG_VALUE } from './refusal.ts';
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
  siteFilter,
  stateFilter,
  text,
  UTC,
} from './resource.ts';

const MAX_LABELS = 20;

/** Labels that an operator gives to devices. */
export const deviceLabels = z
  .record(text(64), text(255))
  .refine(
    (labels) => Object.keys(labels).length <= MAX_LABELS,
    refused(WRONG_VALUE, `has more than ${MAX_LABELS} labels`),
  );

/** A site is written with or without its wildcard. */
function parseSite(name: string): string | Refusal {
  const hostname = parseHostname(name.startsWith('*.') ? name : `*.${name}`);
  return typeof hostname === 'string' ? hostname.slice('*.'.length) : hostname;
}

function parseRange(range: string): string | Refusal {
  try {
    parsePortRange(range);
    return range;
  } catch {
    return { code: WRONG_VALUE, text: 'must be a range of ports such as 20000-20099' };
  }
}

const TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;

/** Brings a time into the form in which the gateway stores it. */
function parseTime(text: string): string | Refusal {
  const time = TIMESTAMP.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time)) return { code: WRONG_VALUE, text: 'must be an RFC 3339 timestamp' };
  return `${new Date(time).toISOString().slice(0, 19)}Z`;
}

const expiry = parsed(parseTime, WRONG_VALUE, TIMESTAMP)
  .optional()
  .describe('When it ends, as an RFC 3339 timestamp. Default: never.');
const maxUses = z
  .int()
  .min(1)
  .max(1_000_000)
  .optional()
  .describe('How many devices can join with it. Default: any number.');

const NEEDS_APPROVAL = 'Whether devices wait until they are approved.';
const OWN_NAMES_ONLY = 'Whether its devices only get names that end in `-<name>`, and never `camera.<site>`.';
const INTERNAL_NAMES = 'Whether its devices may also bind internal endpoints at `*-<name>.<site>.internal`.';
const LABELS = 'Labels of its devices.';

export const EnrolmentKeyCreate = body({
  ...annotations(),
  site: parsed(parseSite, 448, /^(\*\.)?[^\s*_/:]+$/).describe(
    'For example `*.sitea.example.com`. Its domain is reserved when it is not yet.',
  ),
  owner_id: ownerId
    .optional()
    .describe("The bot user that owns its devices' authtokens. Default: that of the site's newest key, or a new one."),
  max_uses: maxUses,
  expires_at: expiry,
  needs_approval: z.boolean().default(false).describe(NEEDS_APPROVAL),
  tcp_ports: parsed(parseRange, WRONG_VALUE, /^\d{1,5}(-\d{1,5})?$/)
    .optional()
    .describe('TCP ports that its devices may bind, for example `20000-20099`. Default: none.'),
  own_names_only: z.boolean().default(false).describe(OWN_NAMES_ONLY),
  internal_names: z.boolean().default(false).describe(INTERNAL_NAMES),
  labels: deviceLabels.default({}).describe(LABELS),
});
export type EnrolmentKeyCreate = z.input<typeof EnrolmentKeyCreate>;

export const EnrolmentKeyUpdate = body({
  ...annotations(),
  max_uses: maxUses,
  expires_at: expiry,
  revoked: z.literal(true).optional().describe('Ends it; the devices that have joined stay.'),
});
export type EnrolmentKeyUpdate = z.input<typeof EnrolmentKeyUpdate>;

export const EnrolmentKey = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    site: z.string().describe('The domain of the site, without the wildcard.'),
    owner_id: z.string().describe("The bot user that owns its devices' authtokens."),
    code: orNull(z.string()).describe(
      'The code for `device-agent join`: only in the response to its creation, null afterwards.',
    ),
    max_uses: orNull(z.int()).describe('How many devices can join with it; null: any number.'),
    uses: z.int().describe('How many devices have joined with it.'),
    expires_at: orNull(z.string()).describe(`When it ends; null: never. ${UTC}`),
    revoked_at: orNull(z.string()).describe(`When it was revoked; null while it is not. ${UTC}`),
    needs_approval: z.boolean().describe(NEEDS_APPROVAL),
    tcp_ports: orNull(z.string()).describe('TCP ports that its devices may bind; null: none.'),
    own_names_only: z.boolean().describe(OWN_NAMES_ONLY),
    internal_names: z.boolean().describe(INTERNAL_NAMES),
    labels: z.record(z.string(), z.string()).describe(LABELS),
  })
  .describe('A key with which devices join a site.');
export type EnrolmentKey = z.output<typeof EnrolmentKey>;

export const EnrolmentKeyFilters = listFilters(
  'id, site, labels, description, metadata or bot user',
  ['site', 'state', 'expires_at', 'uses'],
  {
    state: stateFilter(['valid', 'expired', 'used_up', 'revoked'], 'Whether devices can join with it, or why not.'),
    site: siteFilter('keys'),
    label: labelFilter('its devices'),
  },
);
export type EnrolmentKeyFilters = z.output<typeof EnrolmentKeyFilters>;

export const enrolmentKeys = defineResource({
  name: 'enrolment key',
  label: 'Invite',
  path: '/enrolment_keys',
  idPrefix: 'ek_',
  create: EnrolmentKeyCreate,
  update: EnrolmentKeyUpdate,
  answer: EnrolmentKey,
  filters: EnrolmentKeyFilters,
});

/** Where devices enrol, on the host of the management API; needs no API key. */
export const ENROLMENTS_PATH = '/enrolments';
/** Where a device ends its enrolment; needs no API key. */
export const LEAVE_PATH = `${ENROLMENTS_PATH}/leave`;
/** Where the gateway's CA is; needs no API key. */
export const CA_PATH = '/ca.pem';

/** 32 random bytes in base64url, made once by each installation. */
const INSTALL_KEY = /^[A-Za-z0-9_-]{43}$/;
const NO_KEY = 'must be 32 bytes in base64url';

const installKey = z.string().regex(INSTALL_KEY, refused(WRONG_VALUE, NO_KEY));

export const EnrolmentRequest = body({
  install_key: installKey.describe(
    'Random and secret; a device that sends the same key again is the same device and needs no secret, so that a lost answer does no harm.',
  ),
  secret: text(128, WRONG_VALUE, 'The secret of the enrolment key, as the code has it.').optional(),
  name: text(255, WRONG_VALUE, 'The wanted name. A taken name gets a suffix.').optional(),
  keep_name: z
    .boolean()
    .optional()
    .describe('For a device that only wants its authtoken: it keeps the names that it had before it was renamed.'),
});
export type EnrolmentRequest = z.input<typeof EnrolmentRequest>;

/** What a device sends that leaves its site. */
export const LeaveRequest = body({ install_key: installKey.describe('The key with which it has joined.') });

export const Enrolment = z
  .object({
    status: z
      .enum(['pending', 'enrolled'])
      .describe('`pending`: not approved yet; send the same request again after `retry_after_s`.'),
    device_id: z.string().describe('The id of the device in this API.'),
    name: z.string().describe('The name that the device has got, unique at its site.'),
    site: z.string().describe('The domain of the site, without the wildcard.'),
    domain: z.string().describe('Where its API is reachable: `agent-<name>.<site>`.'),
    authtoken: orNull(z.string()).describe('The authtoken of the device; null while it is pending.'),
    session_address: z.string().describe('Where the agent connects to: `host:port`.'),
    session_addresses: z
      .array(z.string())
      .optional()
      .describe('Where else the gateway takes agents, also by names that it had before.'),
    session_ca: z
      .enum(['gateway', 'public'])
      .describe("Which CA signs the certificate at that address: the gateway's own, or a public one."),
    connector: z.string().describe("What the gateway recommends as the agent's connector."),
    retry_after_s: orNull(z.int()).describe(
      'Seconds after which a pending device asks again; null once it is enrolled.',
    ),
  })
  .describe('What a device gets when it enrols.');
export type Enrolment = z.output<typeof Enrolment>;
