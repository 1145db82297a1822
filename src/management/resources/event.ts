import { z } from 'zod';
import { HOSTNAME, MESSAGE_KINDS, SENT_MESSAGE_TARGETS, SHOWN_MESSAGE_TARGETS } from './message-target.ts';
import { refused } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  areDistinct,
  body,
  COMMON_ANSWER,
  defineResource,
  idOf,
  orNull,
  Ref,
  text,
  UTC,
} from './resource.ts';

const MAX_SOURCES = 200;
const MAX_DESTINATIONS = 10;

/** A type of event. Which there are, the server knows. */
const type = z
  .string()
  .max(100)
  .describe("A type of event, for example `domain_created.v0`; `*` stands for all, which is not in ngrok's API.");

const source = body({ type });

// ngrok's TypeScript client repeats what is in the path.
export const EventSourceCreate = body({
  type,
  subscription_id: z.string().optional().describe('The id of the path again; ignored.'),
});
export const EventSourceUpdate = EventSourceCreate.partial();

const sources = z
  .array(source)
  .max(MAX_SOURCES, refused(5127, `more than ${MAX_SOURCES} sources`))
  .refine((all) => areDistinct(all.map((source) => source.type)), refused(5127, 'has a type twice'))
  .describe(`The types of events that it is for, at most ${MAX_SOURCES}.`);
const destinationIds = z
  .array(idOf(['ed_'], 227))
  .max(MAX_DESTINATIONS, refused(5126, `more than ${MAX_DESTINATIONS} destinations`))
  .describe(`The ids of event destinations, at most ${MAX_DESTINATIONS}.`);

export const EventSubscriptionCreate = body({
  ...annotations(),
  sources: sources.default([]),
  destination_ids: destinationIds.default([]),
});
export type EventSubscriptionCreate = z.input<typeof EventSubscriptionCreate>;

export const EventSubscriptionUpdate = body({
  ...annotations(),
  // ngrok's Python client sends an empty list for one that does not change.
  sources: sources
    .transform((all) => (all.length > 0 ? all : undefined))
    .optional()
    .describe('Replaces all types. An empty list changes nothing.'),
  destination_ids: destinationIds.optional().describe('Replaces all destinations.'),
});
export type EventSubscriptionUpdate = z.input<typeof EventSubscriptionUpdate>;

export const EventSource = z
  .object({
    type: z.string().describe('A type of event; `*` stands for all.'),
    uri: z.string().describe('The URI in this API at which it can be read.'),
  })
  .describe('A type of event that a subscription is for.');
export type EventSource = z.output<typeof EventSource>;

export const EventSourceList = z.object({
  sources: z.array(EventSource).describe('All types that the subscription is for.'),
  uri: z.string().describe('The URI of this list.'),
});
export type EventSourceList = z.output<typeof EventSourceList>;

export const EventSubscription = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    sources: z.array(EventSource).describe('The types of events that it is for.'),
    destinations: z.array(Ref).describe('Where they are sent.'),
  })
  .describe('Which events are sent to which destinations.');
export type EventSubscription = z.output<typeof EventSubscription>;

export const eventSubscriptions = defineResource({
  name: 'event subscription',
  path: '/event_subscriptions',
  idPrefix: 'esb_',
  unknownIdCode: 5123,
  create: EventSubscriptionCreate,
  update: EventSubscriptionUpdate,
  answer: EventSubscription,
});

const NO_TARGET = 5100;
const KIND_LIST = ['webhook', 'file', 'syslog', ...MESSAGE_KINDS].join(', ');
const URL_BYTES = 2048;

/** ngrok's targets that the gateway does not have. */
const elsewhere = z
  .record(z.string(), z.unknown())
  .refine(() => false, refused(NO_TARGET, `not a target of this gateway; use ${KIND_LIST}`))
  .optional()
  .describe('Not supported.');

const webhook = body({
  url: text(URL_BYTES, NO_TARGET, 'An https:// URL without credentials, which gets each event by POST.').refine(
    isWebhookUrl,
    refused(NO_TARGET, 'must be an https:// URL without credentials'),
  ),
  signing_secret: z
    .string()
    .regex(
      /^whsec_(?:[A-Za-z0-9+/]{4}){8,21}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
      refused(NO_TARGET, 'must be whsec_ and 24 to 64 random bytes in base64'),
    )
    .optional()
    .describe(
      'The key that signs the requests: `whsec_` and 24 to 64 random bytes in base64. Left out: the gateway makes one, or keeps the present one.',
    ),
});

function isWebhookUrl(value: string): boolean {
  const url = URL.canParse(value) ? new URL(value) : null;
  return url?.protocol === 'https:' && url.username === '' && url.password === '';
}

const FILE = 'The name of the file, which is `gateway/events/<name>.jsonl` in the data folder of the gateway.';
const FILE_NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const file = body({
  name: z
    .string()
    .regex(FILE_NAME, refused(NO_TARGET, 'can have a-z, 0-9, _ and - only, at most 64; it is no path'))
    .describe(FILE),
});

/** Characters of a CA's certificate. */
const MAX_CA = 32_768;
const SYSLOG = {
  host: 'The hostname or IP address of the syslog server, without port.',
  port: 'The port of the syslog server.',
  transport: 'How messages are sent: `tcp`, `tls` or `udp`.',
  framing: 'How messages are separated in `tcp` and `tls`: by their length before each (RFC 6587), or by a line feed.',
  ca_pem: 'With `tls`, the CA certificates as PEM that the server is verified with; by default, the public ones.',
};
const syslog = body({
  host: z
    .string()
    .regex(HOSTNAME, refused(NO_TARGET, 'must be a hostname or an IP address, without port'))
    .describe(SYSLOG.host),
  port: z.int().min(1).max(65_535).describe(SYSLOG.port),
  transport: z.enum(['tcp', 'tls', 'udp']).default('tcp').describe(SYSLOG.transport),
  framing: z.enum(['octet-counting', 'lf']).default('octet-counting').describe(SYSLOG.framing),
  ca_pem: z.string().max(MAX_CA).optional().describe(SYSLOG.ca_pem),
});

const TARGETS = {
  webhook: 'A server that gets events by HTTPS.',
  file: "A file on the gateway. Not in ngrok's API.",
  syslog: "A syslog server. Not in ngrok's API.",
};

/** Exactly one of its members is sent. */
const target = body({
  webhook: webhook.optional().describe(TARGETS.webhook),
  file: file.optional().describe(TARGETS.file),
  syslog: syslog.optional().describe(TARGETS.syslog),
  ...SENT_MESSAGE_TARGETS,
  firehose: elsewhere,
  kinesis: elsewhere,
  cloudwatch_logs: elsewhere,
  datadog: elsewhere,
  azure_logs_ingestion: elsewhere,
}).transform((sent, ctx) => {
  const given = [
    ...(sent.webhook ? [{ kind: 'webhook' as const, ...sent.webhook }] : []),
    ...(sent.file ? [{ kind: 'file' as const, ...sent.file }] : []),
    ...(sent.syslog ? [{ kind: 'syslog' as const, ...sent.syslog }] : []),
    ...(sent.email ? [{ kind: 'email' as const, ...sent.email }] : []),
    ...(sent.ntfy ? [{ kind: 'ntfy' as const, ...sent.ntfy }] : []),
    ...(sent.slack ? [{ kind: 'slack' as const, ...sent.slack }] : []),
    ...(sent.teams ? [{ kind: 'teams' as const, ...sent.teams }] : []),
    ...(sent.discord ? [{ kind: 'discord' as const, ...sent.discord }] : []),
    ...(sent.telegram ? [{ kind: 'telegram' as const, ...sent.telegram }] : []),
    ...(sent.pagerduty ? [{ kind: 'pagerduty' as const, ...sent.pagerduty }] : []),
  ];
  const [first, ...more] = given;
  if (first && more.length === 0) return first;
  const message = first
    ? refused(5115, 'must have one member only')
    : refused(NO_TARGET, `must have one of ${KIND_LIST}`);
  ctx.issues.push({ code: 'custom', message, input: sent });
  return z.NEVER;
});

/** ngrok's clients send it in both cases, or empty. */
const format = z
  .string()
  .regex(/^(?:json)?$/i, refused(235, 'must be json'))
  .optional()
  .describe('`json`, the only one and the default.');

export const EventDestinationCreate = body({
  ...annotations(),
  format,
  target: target.describe('Where events are sent: one member only.'),
});
export type EventDestinationCreate = z.input<typeof EventDestinationCreate>;

export const EventDestinationUpdate = body({
  ...annotations(),
  format,
  target: target.optional().describe('Of the same kind as before. Secrets that are left out stay as they are.'),
});
export type EventDestinationUpdate = z.input<typeof EventDestinationUpdate>;

export const EventTarget = z
  .object({
    webhook: orNull(
      z.object({
        url: z.string().describe('The URL that gets each event by POST.'),
        signing_secret: orNull(z.string()).describe(
          'The key that signs the requests: only in the answer after the gateway has made it, null otherwise.',
        ),
      }),
    ).describe(`${TARGETS.webhook} Null for another kind.`),
    file: orNull(z.object({ name: z.string().describe(FILE) })).describe(`${TARGETS.file} Null for another kind.`),
    syslog: orNull(
      z.object({
        host: z.string().describe(SYSLOG.host),
        port: z.int().describe(SYSLOG.port),
        transport: z.string().describe(SYSLOG.transport),
        framing: z.string().default('octet-counting').describe(SYSLOG.framing),
        ca_pem: orNull(z.string()).describe(SYSLOG.ca_pem),
      }),
    ).describe(`${TARGETS.syslog} Null for another kind.`),
    ...SHOWN_MESSAGE_TARGETS,
  })
  .describe('What is left out of a target of another kind is null.');
export type EventTarget = z.output<typeof EventTarget>;

export const EventDelivery = z
  .object({
    failing_since: orNull(z.string()).describe(`Since when it fails; null while it does not. ${UTC}`),
    error: orNull(z.string()).describe('Why it fails; null while it does not.'),
    waiting_since: orNull(z.string()).describe(`Since when its oldest event waits; null while none does. ${UTC}`),
    delivered_until: orNull(z.string()).describe(
      `The time of the newest event up to which it has all; null before the first. ${UTC}`,
    ),
    skipped: z.int().describe('How many events were skipped because they became too old.'),
    // Older gateways do not say.
    refused: z.int().default(0).describe('How many events it has refused, which were passed over.'),
  })
  .describe('How a destination is getting its events.');

export const EventDestination = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    format: z.string().describe('Always `json`.'),
    target: EventTarget.describe('The `signing_secret` of a webhook is returned once, when the gateway has made it.'),
    delivery: EventDelivery.optional().describe(
      "Since when it fails and why, since when its oldest event waits, the time of the newest event up to which it has all, and how many were skipped because they became too old, or refused by it and passed over. Not in ngrok's API.",
    ),
  })
  .describe('Where events are sent.');
export type EventDestination = z.output<typeof EventDestination>;

export const eventDestinations = defineResource({
  name: 'event destination',
  path: '/event_destinations',
  idPrefix: 'ed_',
  unknownIdCode: 5103,
  create: EventDestinationCreate,
  update: EventDestinationUpdate,
  answer: EventDestination,
});

export const DestinationTest = z
  .object({
    accepted: z.boolean().describe('Whether the destination has taken the test message.'),
    answer: z.string().describe('What the destination answered, in words, or why nothing could be sent.'),
  })
  .describe('What came of a test message.');
export type DestinationTest = z.output<typeof DestinationTest>;

export const RefusedEvent = z
  .object({
    id: z.string().describe('The id of the refusal, not of the event.'),
    created_at: z.string().describe(`When it was passed over. ${UTC}`),
    event_id: z.string().describe('The id of the event.'),
    event_type: z.string().describe('The type of the event, for example `domain_created.v0`.'),
    event_timestamp: z.string().describe(`When the event happened. ${UTC}`),
    reason: z.string().describe('How the destination has refused it.'),
    sending: z.boolean().describe('Whether it is sent again.'),
  })
  .describe('An event that a destination has refused, and that was passed over.');
export type RefusedEvent = z.output<typeof RefusedEvent>;

/** Events that a destination has refused, below it. */
export const refusedEvents = { listKey: 'refused_events', idPrefix: 'rfe_' };

const MAX_CHOSEN = 1_000;

export const RefusedEventChoice = body({
  refused_event_ids: z
    .array(idOf([refusedEvents.idPrefix], 227))
    .max(MAX_CHOSEN)
    .optional()
    .describe('Left out: all that the destination has refused. Ids that it no longer has are ignored.'),
});
export type RefusedEventChoice = z.input<typeof RefusedEventChoice>;
