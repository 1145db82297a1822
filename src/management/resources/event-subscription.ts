import { z } from 'zod';
import { ANNOTATIONS_ANSWER, annotations, areDistinct, body, COMMON_ANSWER, idOf, Ref } from './members.ts';
import { refused } from './refusal.ts';

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

export const eventSubscriptions = {
  name: 'event subscription',
  path: '/event_subscriptions',
  idPrefix: 'esb_',
  listKey: 'event_subscriptions',
  unknownIdCode: 5123,
  create: EventSubscriptionCreate,
  update: EventSubscriptionUpdate,
  answer: EventSubscription,
};
