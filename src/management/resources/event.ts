import { z } from 'zod';
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
} from './resource.ts';

const MAX_SOURCES = 200;
const MAX_DESTINATIONS = 10;

/** A type of event. Which there are, the server knows. */
const type = z.string().max(100);

const source = body({ type });

// ngrok's TypeScript client repeats what is in the path.
export const EventSourceCreate = body({ type, subscription_id: z.string().optional() });
export const EventSourceUpdate = EventSourceCreate.partial();

const sources = z
  .array(source)
  .max(MAX_SOURCES, refused(5127, `more than ${MAX_SOURCES} sources`))
  .refine((all) => areDistinct(all.map((source) => source.type)), refused(5127, 'has a type twice'));
const destinationIds = z
  .array(idOf(['ed_'], 227))
  .max(MAX_DESTINATIONS, refused(5126, `more than ${MAX_DESTINATIONS} destinations`));

export const EventSubscriptionCreate = body({
  ...annotations(),
  sources: sources.default([]),
  destination_ids: destinationIds.default([]),
});
export interface EventSubscriptionCreate extends z.input<typeof EventSubscriptionCreate> {
  /** Types of events, for example `domain_created.v0`; `*` stands for all, which is not in ngrok's API. */
  sources?: z.input<typeof source>[] | undefined;
  /** Event destinations, at most 10. */
  destination_ids?: string[] | undefined;
}

export const EventSubscriptionUpdate = body({
  ...annotations(),
  // ngrok's Python client sends an empty list for one that does not change.
  sources: sources.transform((all) => (all.length > 0 ? all : undefined)).optional(),
  destination_ids: destinationIds.optional(),
});
export interface EventSubscriptionUpdate extends z.input<typeof EventSubscriptionUpdate> {
  /** An empty list changes nothing: ngrok's Python client sends it always. */
  sources?: z.input<typeof source>[] | undefined;
}

/** A type of event that a subscription is for. */
export const EventSource = z.object({ type: z.string(), uri: z.string() });
export interface EventSource extends z.output<typeof EventSource> {}

export const EventSourceList = z.object({ sources: z.array(EventSource), uri: z.string() });
export interface EventSourceList extends z.output<typeof EventSourceList> {}

/** Which events are sent to which destinations. */
export const EventSubscription = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  sources: z.array(EventSource),
  destinations: z.array(Ref),
});
export interface EventSubscription extends z.output<typeof EventSubscription> {}

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
const URL_BYTES = 2048;

/** ngrok's targets that the gateway does not have. */
const elsewhere = z
  .record(z.string(), z.unknown())
  .refine(() => false, refused(NO_TARGET, 'not a target of this gateway; use webhook, file or syslog'))
  .optional()
  .meta({ description: 'Not supported.' });

const webhook = body({
  url: text(URL_BYTES, NO_TARGET).refine(
    isWebhookUrl,
    refused(NO_TARGET, 'must be an https:// URL without credentials'),
  ),
  signing_secret: z
    .string()
    .regex(
      /^whsec_(?:[A-Za-z0-9+/]{4}){8,21}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
      refused(NO_TARGET, 'must be whsec_ and 24 to 64 random bytes in base64'),
    )
    .optional(),
});

function isWebhookUrl(value: string): boolean {
  const url = URL.canParse(value) ? new URL(value) : null;
  return url?.protocol === 'https:' && url.username === '' && url.password === '';
}

const FILE_NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const file = body({
  name: z.string().regex(FILE_NAME, refused(NO_TARGET, 'can have a-z, 0-9, _ and - only, at most 64; it is no path')),
});

/** Characters of a CA's certificate. */
const MAX_CA = 32_768;
const HOST = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45})$/;
const syslog = body({
  host: z.string().regex(HOST, refused(NO_TARGET, 'must be a hostname or an IP address, without port')),
  port: z.int().min(1).max(65_535),
  transport: z.enum(['tcp', 'tls', 'udp']).default('tcp'),
  framing: z.enum(['octet-counting', 'lf']).default('octet-counting'),
  ca_pem: z.string().max(MAX_CA).optional(),
});

/** Exactly one of its members is sent. */
const target = body({
  webhook: webhook.optional(),
  file: file.optional(),
  syslog: syslog.optional(),
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
  ];
  const [first, ...more] = given;
  if (first && more.length === 0) return first;
  const message = first
    ? refused(5115, 'must have one member only')
    : refused(NO_TARGET, 'must have a webhook, a file or a syslog');
  ctx.issues.push({ code: 'custom', message, input: sent });
  return z.NEVER;
});

/** ngrok's clients send it in both cases, or empty. */
const format = z.string().regex(/^(?:json)?$/i, refused(235, 'must be json'));

export const EventDestinationCreate = body({ ...annotations(), format: format.optional(), target });
export interface EventDestinationCreate extends z.input<typeof EventDestinationCreate> {
  /** `json`, the only one and the default. */
  format?: string | undefined;
  /** Where events are sent: one of `webhook`, `file` and `syslog`. */
  target: z.input<typeof target>;
}

export const EventDestinationUpdate = body({ ...annotations(), format: format.optional(), target: target.optional() });
export interface EventDestinationUpdate extends z.input<typeof EventDestinationUpdate> {
  /** Of the same kind as before. Without `signing_secret`, a webhook keeps its own. */
  target?: z.input<typeof target> | undefined;
}

/** What is left out of a target of another kind is null. */
export const EventTarget = z.object({
  webhook: orNull(z.object({ url: z.string(), signing_secret: orNull(z.string()) })),
  file: orNull(z.object({ name: z.string() })),
  syslog: orNull(
    z.object({
      host: z.string(),
      port: z.int(),
      transport: z.string(),
      framing: z.string().default('octet-counting'),
      ca_pem: orNull(z.string()),
    }),
  ),
});
export interface EventTarget extends z.output<typeof EventTarget> {}

/** How a destination is getting its events. */
export const EventDelivery = z.object({
  failing_since: orNull(z.string()),
  error: orNull(z.string()),
  waiting_since: orNull(z.string()),
  delivered_until: orNull(z.string()),
  skipped: z.int(),
  // Older gateways do not say.
  refused: z.int().default(0),
});

/** Where events are sent. */
export const EventDestination = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  format: z.string(),
  target: EventTarget,
  delivery: EventDelivery.optional(),
});
export interface EventDestination extends z.output<typeof EventDestination> {
  /** The `signing_secret` of a webhook is returned once, when the gateway has made it. */
  target: EventTarget;
  /**
   * Since when it fails and why, since when its oldest event waits, the time of the newest event up to which it has all, and how
   * many were skipped because they became too old, or refused by it and passed over. Not in ngrok's API.
   */
  delivery?: z.output<typeof EventDelivery> | undefined;
}

export const eventDestinations = defineResource({
  name: 'event destination',
  path: '/event_destinations',
  idPrefix: 'ed_',
  unknownIdCode: 5103,
  create: EventDestinationCreate,
  update: EventDestinationUpdate,
  answer: EventDestination,
});

/** An event that a destination has refused, and that was passed over. */
export const RefusedEvent = z.object({
  id: z.string(),
  created_at: z.string(),
  event_id: z.string(),
  event_type: z.string(),
  event_timestamp: z.string(),
  reason: z.string(),
  sending: z.boolean(),
});
export interface RefusedEvent extends z.output<typeof RefusedEvent> {
  /** When it was passed over. */
  created_at: string;
  /** Whether it is sent again. */
  sending: boolean;
}

/** Events that a destination has refused, below it. */
export const refusedEvents = { listKey: 'refused_events', idPrefix: 'rfe_' };

const MAX_CHOSEN = 1_000;

export const RefusedEventChoice = body({
  refused_event_ids: z
    .array(idOf([refusedEvents.idPrefix], 227))
    .max(MAX_CHOSEN)
    .optional(),
});
export interface RefusedEventChoice extends z.input<typeof RefusedEventChoice> {
  /** Left out: all that the destination has refused. Ids that it no longer has are ignored. */
  refused_event_ids?: string[] | undefined;
}
