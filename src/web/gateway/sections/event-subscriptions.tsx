import type { EventDestination } from '../../../management/resources/event-destination.ts';
import type { EventSubscription } from '../../../management/resources/event-subscription.ts';
import { Named } from '../cells.tsx';
import { type FormField, type FormValues, type ItemForm, linesOf } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { loadOptions } from '../paged-list.ts';
import { ANNOTATIONS, CREATED, newAnnotations, resource } from '../resource.tsx';
import type { Column } from '../section.ts';

/** Where a destination sends events, in one line. */
export function placeOf({ target: { webhook, file, syslog } }: EventDestination): string {
  if (webhook) return webhook.url;
  if (file) return `${file.name}.jsonl`;
  return syslog ? `${syslog.transport}://${syslog.host}:${syslog.port}` : 'Cannot be decrypted';
}

/** What people call a destination. */
export const destinationName = (destination: EventDestination): string =>
  destination.description || placeOf(destination);

const typesOf = ({ sources }: EventSubscription): string[] =>
  sources.map(({ type }) => (type === '*' ? 'All events' : type));
const MOST_TYPES = 3;

/** Its first types. */
function shortTypes(subscription: EventSubscription): string {
  const types = typesOf(subscription);
  const more = types.length - MOST_TYPES;
  return types.slice(0, MOST_TYPES).join(', ') + (more > 0 ? ` and ${more} more` : '') || 'No events';
}

export const SUBSCRIPTION_COLUMNS: readonly Column<EventSubscription>[] = [
  { head: 'Events', cell: (each) => <Named name={shortTypes(each)} below={each.description} /> },
  CREATED,
];

const FIELDS: readonly FormField[] = [
  {
    name: 'sources',
    label: 'Types of events',
    hint: 'One on each line, such as domain_created.v0; * stands for all. docs/events.md lists them.',
    kind: 'lines',
    required: 'Enter at least one type, or * for all.',
  },
  {
    name: 'destinations',
    member: 'destination_ids',
    label: 'Sent to',
    kind: 'some-of',
    load: () =>
      loadOptions<EventDestination>({
        ...{ path: '/event_destinations', listKey: 'event_destinations' },
        nameOf: destinationName,
      }),
  },
  ...ANNOTATIONS,
];

const bodyOf = ({ sources, destinations }: FormValues): object => ({
  sources: linesOf(sources).map((type) => ({ type })),
  destination_ids: linesOf(destinations),
});

/** Makes a subscription. */
export const subscriptionForm: ItemForm = {
  label: 'Create event subscription',
  fields: FIELDS,
  body: (values) => ({ ...bodyOf(values), ...newAnnotations(values) }),
};

/** Which events are sent to which destinations. */
export const eventSubscriptionsSection = resource<EventSubscription>({
  name: 'event-subscriptions',
  path: '/event_subscriptions',
  nameOf: (each) => each.description || shortTypes(each),
  columns: SUBSCRIPTION_COLUMNS,
  searchTexts: (each) => [each.id, ...typesOf(each), each.description, each.metadata],
  empty: {
    title: 'No event subscriptions yet',
    text: 'A subscription says which events are sent to which destinations. Create a destination first.',
  },
  create: { ...subscriptionForm, values: { sources: '*' }, body: bodyOf },
  edit: {
    label: 'Edit event subscription',
    fields: FIELDS,
    values: ({ sources, destinations }) => ({
      sources: sources.map(({ type }) => type).join('\n'),
      destinations: destinations.map(({ id }) => id).join('\n'),
    }),
    body: bodyOf,
  },
  facts: (each) => [
    { label: 'Events', value: typesOf(each).map((type) => <div key={type}>{type}</div>) },
    {
      label: 'Sent to',
      value:
        each.destinations.length === 0
          ? 'No destination'
          : each.destinations.map(({ id }) => (
              <div key={id}>
                <ItemLink section="event-destinations" id={id} />
              </div>
            )),
    },
  ],
  remove: () => ({
    title: 'Delete this event subscription?',
    effects: ['Its destinations no longer get these events, unless another subscription names them.'],
    submit: 'Delete event subscription',
  }),
});
