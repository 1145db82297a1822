import type { EventDestination, EventSubscription, RefusedEvent } from '../../../management/resources/event.ts';
import type { MessageRule } from '../../../management/resources/message-rule.ts';
import { usualRules } from '../../../management/usual-rules.ts';
import { Badge } from '../../ui/notice.tsx';
import { span } from '../../ui/time-span.ts';
import { confirmed, edited } from '../action-dialogs.tsx';
import { Ago, Named, optional } from '../cells.tsx';
import { type FormField, type FormValues, type ItemForm, textLines } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { OwnedItems } from '../item-table.tsx';
import { loadOptions } from '../paged-list.ts';
import { ANNOTATIONS, CREATED, newAnnotations, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action, ListColumn } from '../section.ts';
import { api } from '../session.ts';

/** Where a destination sends events, in one line. */
function placeOf({ target }: EventDestination): string {
  const { webhook, file, syslog } = target;
  if (webhook) return webhook.url;
  if (file) return `${file.name}.jsonl`;
  if (syslog) return `${syslog.transport}://${syslog.host}:${syslog.port}`;
  const { email, ntfy, slack, teams, discord, telegram, pagerduty } = target;
  const told = email ?? ntfy ?? slack ?? teams ?? discord ?? telegram ?? pagerduty;
  return told?.address ?? 'Cannot be decrypted';
}

/** What people call a destination. */
export const destinationName = (destination: EventDestination): string =>
  destination.description || placeOf(destination);

const KINDS = [
  { value: 'webhook', label: 'Webhook', hint: 'A signed HTTPS request for each event.' },
  { value: 'email', label: 'Email', hint: 'By your SMTP server.' },
  { value: 'ntfy', label: 'ntfy', hint: 'A topic at ntfy.sh, or at a server of yours.' },
  { value: 'slack', label: 'Slack' },
  { value: 'teams', label: 'Microsoft Teams' },
  { value: 'discord', label: 'Discord' },
  { value: 'telegram', label: 'Telegram' },
  { value: 'pagerduty', label: 'PagerDuty' },
  { value: 'syslog', label: 'Syslog server' },
  { value: 'file', label: 'File', hint: 'On the gateway’s machine, in its data folder.' },
] as const;

const kindOf = ({ target }: EventDestination) => KINDS.find(({ value }) => target[value] !== null);

function state({ delivery }: EventDestination) {
  if (delivery?.failing_since) return <Badge tone="bad">Failing</Badge>;
  if (delivery?.refused) return <Badge tone="warning">Has refused events</Badge>;
  return delivery?.waiting_since ? <Badge tone="neutral">Sending</Badge> : <Badge tone="good">Up to date</Badge>;
}

const isKind =
  (...kinds: string[]) =>
  ({ kind: chosen = KINDS[0].value }: FormValues): boolean =>
    kinds.includes(chosen);

const target = { member: 'target' } as const;
const KEPT = 'Empty when you edit: the present one stays.';
const DESTINATION_FIELDS: readonly FormField[] = [
  {
    ...{ name: 'to', ...target, label: 'To', kind: 'lines', isShown: isKind('email') },
    hint: 'Email addresses, one on each line.',
    required: 'Enter at least one email address.',
  },
  {
    ...{ name: 'from', ...target, label: 'From', kind: 'text', isShown: isKind('email') },
    hint: 'An address that the server accepts as the sender.',
    required: 'Enter an email address.',
  },
  {
    ...{ name: 'smtp_host', ...target, label: 'SMTP server', kind: 'text', isShown: isKind('email') },
    required: 'Enter the name or IP address of the server.',
  },
  {
    ...{ name: 'smtp_port', ...target, label: 'SMTP port', kind: 'number', isShown: isKind('email') },
    bounds: { min: 1, max: 65_535 },
  },
  {
    ...{ name: 'security', ...target, label: 'Encryption', kind: 'choice', isShown: isKind('email') },
    options: [
      { value: 'starttls', label: 'STARTTLS', hint: 'Usual at port 587.' },
      { value: 'tls', label: 'TLS', hint: 'Usual at port 465.' },
      { value: 'none', label: 'None', hint: 'The password and the messages are readable on the way.' },
    ],
  },
  {
    ...{ name: 'username', ...target, label: 'User name', kind: 'text', isShown: isKind('email') },
    hint: 'Optional: empty for no login.',
  },
  {
    ...{ name: 'password', ...target, label: 'Password', kind: 'text', isShown: isKind('email') },
    hint: KEPT,
  },
  {
    ...{ name: 'smtp_ca', ...target, label: 'CA of the server', kind: 'code', isShown: isKind('email') },
    hint: 'Optional: the certificate of a private CA in PEM. Empty: the public CAs.',
  },
  {
    ...{ name: 'topic', ...target, label: 'URL of the topic', kind: 'text', isShown: isKind('ntfy') },
    hint: 'Such as https://ntfy.sh/my-topic. Anyone who knows the name of a topic can read it: choose one that nobody guesses.',
    required: 'Enter the URL of the topic.',
  },
  {
    ...{ name: 'token', ...target, label: 'Access token', kind: 'text', isShown: isKind('ntfy') },
    hint: `Optional. ${KEPT}`,
  },
  {
    ...{ name: 'hook', ...target, label: 'Webhook URL', kind: 'text', isShown: isKind('slack', 'teams', 'discord') },
    hint: `The URL that the program shows for an incoming webhook. ${KEPT}`,
  },
  {
    ...{ name: 'chat_id', ...target, label: 'Chat', kind: 'text', isShown: isKind('telegram') },
    hint: 'The number of the chat, or @ and the name of a channel.',
    required: 'Enter the number of the chat.',
  },
  {
    ...{ name: 'bot_token', ...target, label: 'Token of the bot', kind: 'text', isShown: isKind('telegram') },
    hint: KEPT,
  },
  {
    ...{ name: 'routing_key', ...target, label: 'Integration key', kind: 'text', isShown: isKind('pagerduty') },
    hint: `Of an integration with the Events API v2. ${KEPT}`,
  },
  {
    ...{ name: 'region', ...target, label: 'Service region', kind: 'choice', isShown: isKind('pagerduty') },
    options: [
      { value: 'us', label: 'US' },
      { value: 'eu', label: 'EU' },
    ],
  },
  {
    ...{ name: 'url', ...target, label: 'URL', kind: 'text', isShown: isKind('webhook') },
    hint: 'Such as https://siem.example.com/gateway, on the public internet or in GATEWAY_POLICY_NETWORKS.',
    required: 'Enter a URL that starts with https://.',
  },
  {
    ...{ name: 'host', ...target, label: 'Server', kind: 'text', isShown: isKind('syslog') },
    hint: 'Its name or IP address.',
    required: 'Enter the name or IP address of the server.',
  },
  {
    ...{ name: 'port', ...target, label: 'Port', kind: 'number', isShown: isKind('syslog') },
    bounds: { min: 1, max: 65_535 },
  },
  {
    ...{ name: 'transport', ...target, label: 'Transport', kind: 'choice', isShown: isKind('syslog') },
    options: [
      { value: 'tls', label: 'TLS' },
      { value: 'tcp', label: 'TCP' },
      { value: 'udp', label: 'UDP', hint: 'Events may be lost.' },
    ],
  },
  {
    ...{ name: 'framing', ...target, label: 'Messages over TCP and TLS', kind: 'choice', isShown: isKind('syslog') },
    options: [
      { value: 'octet-counting', label: 'Begin with their length' },
      { value: 'lf', label: 'End with a line feed', hint: 'As Fluent Bit and Logstash expect.' },
    ],
  },
  {
    ...{ name: 'ca_pem', ...target, label: 'CA of the server', kind: 'code', isShown: isKind('syslog') },
    hint: 'Optional, for TLS: the certificate of a private CA in PEM. Empty: the public CAs.',
  },
  {
    ...{ name: 'file', ...target, label: 'Name', kind: 'text', isShown: isKind('file') },
    hint: 'Without folder and ending: audit becomes audit.jsonl.',
    required: 'Enter a name, such as audit.',
  },
  ...ANNOTATIONS,
];

/** The member `target` of a request. */
function targetOf({ kind = KINDS[0].value, url = '', file = '', ...syslog }: FormValues) {
  if (kind === 'webhook') return { webhook: { url: url.trim() } };
  if (kind === 'file') return { file: { name: file.trim() } };
  if (kind !== 'syslog') return { [kind]: messageTarget(kind, syslog) };
  const { host = '', port, transport = 'tls', framing, ca_pem = '' } = syslog;
  return {
    syslog: {
      ...{ host: host.trim(), port: Number(port), transport },
      ...(framing && { framing }),
      ...(ca_pem.trim() !== '' && { ca_pem: ca_pem.trim() }),
    },
  };
}

/** The target of one of the kinds that people read. Secrets that are empty stay as they are. */
function messageTarget(kind: string, values: FormValues): object {
  const text = (name: string) => values[name]?.trim() ?? '';
  const given = (member: string, name = member) => (text(name) === '' ? {} : { [member]: text(name) });
  if (kind === 'email')
    return {
      ...{ to: textLines(values.to), from: text('from'), host: text('smtp_host'), port: Number(text('smtp_port')) },
      ...{ security: text('security') || 'starttls' },
      ...{ ...given('username'), ...given('password'), ...given('ca_pem', 'smtp_ca') },
    };
  if (kind === 'ntfy') return { url: text('topic'), ...given('token') };
  if (kind === 'telegram') return { chat_id: text('chat_id'), ...given('bot_token') };
  if (kind === 'pagerduty') return { region: text('region') || 'us', ...given('routing_key') };
  return given('url', 'hook');
}

/** Where events are sent. */
export const eventDestinationsSection = resource<EventDestination>(RESOURCES.eventDestinations, {
  name: 'event-destinations',
  title: 'Event destinations',
  tables: ['event_destinations', 'event_deliveries', 'refused_events'],
  nameOf: destinationName,
  columns: [
    { head: 'Sends to', cell: (each) => <Named name={placeOf(each)} below={each.description} /> },
    { head: 'Kind', cell: (each) => kindOf(each)?.label ?? '–' },
    { head: 'State', cell: state },
    CREATED,
  ],
  searchTexts: (each) => [each.id, placeOf(each), kindOf(each)?.label, each.description, each.metadata],
  empty: {
    title: 'No event destinations yet',
    text: 'The gateway sends messages and events, such as changes, sign-ins and denied requests, by email, to chat programs, webhooks, syslog servers and files.',
  },
  create: {
    label: 'Create event destination',
    fields: [{ name: 'kind', label: 'Kind', kind: 'choice', options: KINDS }, ...DESTINATION_FIELDS],
    values: { port: '6514', smtp_port: '587' },
    body: (values) => ({ target: targetOf(values) }),
    once: ({ target }) => signingSecretIn(target as EventDestination['target']),
  },
  edit: {
    label: 'Edit event destination',
    fields: DESTINATION_FIELDS,
    values: (each) => {
      const { webhook, file, syslog, email, ntfy, telegram, pagerduty } = each.target;
      return {
        ...{ to: email?.to.join('\n') ?? '', from: email?.from ?? '', smtp_host: email?.host ?? '' },
        ...{ smtp_port: String(email?.port ?? ''), security: email?.security ?? '', username: email?.username ?? '' },
        ...{ smtp_ca: email?.ca_pem ?? '', topic: ntfy?.url ?? '', chat_id: telegram?.chat_id ?? '' },
        region: pagerduty?.region ?? '',
        ...{ kind: kindOf(each)?.value ?? '', url: webhook?.url ?? '', file: file?.name ?? '' },
        ...{ host: syslog?.host ?? '', port: String(syslog?.port ?? ''), transport: syslog?.transport ?? '' },
        ...{ framing: syslog?.framing ?? '', ca_pem: syslog?.ca_pem ?? '' },
      };
    },
    body: (values) => (values.kind === '' ? {} : { target: targetOf(values) }),
  },
  facts: (each) => {
    const { failing_since, error, waiting_since, delivered_until, skipped, refused } = each.delivery ?? {};
    return [
      { label: kindOf(each)?.label ?? 'Target', value: <span class="url">{placeOf(each)}</span> },
      { label: 'State', value: state(each) },
      ...optional('Delivered up to', delivered_until && <Ago moment={delivered_until} />),
      ...optional('Failing since', failing_since && <Ago moment={failing_since} />),
      ...optional('Reason', failing_since && error),
      ...optional('Oldest event that waits', waiting_since && <Ago moment={waiting_since} />),
      ...optional('Refused and passed over', refused !== 0 && refused),
      ...optional('Skipped because they were too old', skipped !== 0 && skipped),
    ];
  },
  more: (destination) => (
    <>
      <OwnedItems<MessageRule>
        key={`${destination.id} rules`}
        title="Message rules"
        path="/message_rules"
        listKey="message_rules"
        section="message-rules"
        columns={RULE_COLUMNS}
        owner={destination}
        isOwned={({ destination_ids }) => destination_ids.includes(destination.id)}
        none={<p class="hint">No rule names it: nobody is told here when something goes wrong.</p>}
      />
      <OwnedItems<EventSubscription>
        key={destination.id}
        title="Subscriptions"
        path="/event_subscriptions"
        listKey="event_subscriptions"
        section="event-subscriptions"
        columns={SUBSCRIPTION_COLUMNS}
        owner={destination}
        isOwned={({ destinations }) => destinations.some(({ id }) => id === destination.id)}
        add={() => subscribe(destination)}
        none={<p class="hint">No subscription names it: it gets no events yet.</p>}
      />
      {!!destination.delivery?.refused && (
        <OwnedItems<RefusedEvent>
          key={`${destination.id} refused`}
          title="Refused events"
          path={`/event_destinations/${destination.id}/refused_events`}
          listKey="refused_events"
          columns={REFUSED_COLUMNS}
          owner={destination}
          actions={(event) => decisions(destination, event)}
          none={null}
        />
      )}
    </>
  ),
  remove: (each) => ({
    title: `Delete the event destination ${placeOf(each)}?`,
    effects: ['It gets no more events, not even those that wait.', 'One that a subscription names cannot be deleted.'],
    submit: 'Delete event destination',
  }),
  actions: (each, { edit, remove }) => [
    testMessage(each),
    usual(each),
    ...edit,
    ...(each.target.webhook ? [newSecret(each)] : []),
    ...(each.delivery?.refused ? decisions(each, null) : []),
    ...remove,
  ],
});

const RULE_COLUMNS: readonly ListColumn<MessageRule>[] = [
  { head: 'About', cell: ({ description, conditions }) => description || conditions.join(', ') || 'Everything' },
  { head: 'After', cell: ({ after_minutes }) => span(after_minutes * 60_000) },
];

const REFUSED_COLUMNS: readonly ListColumn<RefusedEvent>[] = [
  { head: 'Event', cell: ({ event_type, event_id }) => <Named name={event_type} below={event_id} /> },
  { head: 'Happened', cell: ({ event_timestamp }) => <Ago moment={event_timestamp} /> },
  { head: 'Reason', cell: ({ reason, sending }) => (sending ? 'Is sent again' : reason) },
];

/** What one can do with a refused event; null: with all of the destination. */
function decisions({ id }: EventDestination, event: RefusedEvent | null): Action[] {
  const body = event ? { refused_event_ids: [event.id] } : {};
  const what = event ? 'refused event' : 'refused events';
  const decide = (action: string) => () => api('POST', `/event_destinations/${id}/${action}`, body);
  return [
    confirmed({
      name: 'send-again',
      label: event ? 'Send again' : 'Send refused again',
      title: `Send the ${what} again?`,
      effects: ['The destination gets them after events that were later.'],
      submit: 'Send again',
      isDestructive: false,
      run: decide('send_again'),
    }),
    confirmed({
      name: 'let-go',
      label: event ? 'Let go' : 'Let refused go',
      title: `Let the ${what} go?`,
      effects: ['The destination does not get them. Changes stay in the audit log.'],
      submit: 'Let go',
      isDestructive: true,
      run: decide('let_go'),
    }),
  ];
}

/** Makes the rules that suit most gateways. */
function usual({ id }: EventDestination): Action {
  return confirmed({
    name: 'usual-rules',
    label: 'Add the usual rules',
    title: 'Send messages here when something goes wrong?',
    effects: usualRules(id).map(({ description, after_minutes }) => `${description}: after ${after_minutes} min.`),
    submit: 'Add the usual rules',
    isDestructive: false,
    run: async () => {
      for (const rule of usualRules(id)) await api('POST', '/message_rules', rule);
    },
  });
}

/** Sends a test message, and shows what the destination answered. */
function testMessage({ id }: EventDestination): Action {
  const form: ItemForm = {
    label: 'Send a test message',
    fields: [],
    body: () => ({}),
    once: ({ accepted, answer }) => ({
      outcome: accepted ? 'The test message was accepted' : 'The test message was not accepted',
      text: String(answer),
    }),
  };
  return edited({ name: 'test', label: 'Test', method: 'POST', path: `/event_destinations/${id}/test`, form });
}

/** The signing secret of a webhook that the gateway has made; null without one. */
function signingSecretIn({ webhook }: EventDestination['target']) {
  return webhook?.signing_secret ? shownSecret(webhook.signing_secret) : null;
}

const shownSecret = (text: string) => ({
  text,
  note: 'The receiver checks the signatures of events with this secret.',
});

function subscribe({ id }: EventDestination): Action {
  const form = { ...subscriptionForm, values: { sources: '*', destinations: id } };
  return edited({ name: 'subscribe', label: 'Add subscription', method: 'POST', path: '/event_subscriptions', form });
}

/** Bytes of a signing secret. */
const SECRET_BYTES = 32;

/** The API takes a new secret rather than making one. */
function newSecret({ id, target: { webhook } }: EventDestination): Action {
  const random = String.fromCharCode(...crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
  const signing_secret = `whsec_${btoa(random)}`;
  return edited({
    name: 'secret',
    label: 'New signing secret',
    method: 'PATCH',
    path: `/event_destinations/${id}`,
    form: {
      label: 'Replace the signing secret',
      fields: [],
      body: () => ({ target: { webhook: { url: webhook?.url, signing_secret } } }),
      once: () => shownSecret(signing_secret),
    },
  });
}

const typesOf = ({ sources }: EventSubscription): string[] =>
  sources.map(({ type }) => (type === '*' ? 'All events' : type));
const MOST_TYPES = 3;

/** Its first types. */
function shortTypes(subscription: EventSubscription): string {
  const types = typesOf(subscription);
  const more = types.length - MOST_TYPES;
  return types.slice(0, MOST_TYPES).join(', ') + (more > 0 ? ` and ${more} more` : '') || 'No events';
}

const SUBSCRIPTION_COLUMNS: readonly ListColumn<EventSubscription>[] = [
  { head: 'Events', cell: (each) => <Named name={shortTypes(each)} below={each.description} /> },
  CREATED,
];

/** A choice of destinations. */
export const DESTINATIONS_FIELD: FormField = {
  name: 'destinations',
  member: 'destination_ids',
  label: 'Sent to',
  kind: 'some-of',
  load: () =>
    loadOptions<EventDestination>({
      ...{ path: '/event_destinations', listKey: 'event_destinations' },
      nameOf: destinationName,
    }),
};

const SUBSCRIPTION_FIELDS: readonly FormField[] = [
  {
    name: 'sources',
    label: 'Types of events',
    hint: 'One on each line, such as domain_created.v0; * stands for all. docs/events.md lists them.',
    kind: 'lines',
    required: 'Enter at least one type, or * for all.',
  },
  DESTINATIONS_FIELD,
  ...ANNOTATIONS,
];

const bodyOf = ({ sources, destinations }: FormValues): object => ({
  sources: textLines(sources).map((type) => ({ type })),
  destination_ids: textLines(destinations),
});

/** Makes a subscription. */
const subscriptionForm: ItemForm = {
  label: 'Create event subscription',
  fields: SUBSCRIPTION_FIELDS,
  body: (values) => ({ ...bodyOf(values), ...newAnnotations(values) }),
};

/** Which events are sent to which destinations. */
export const eventSubscriptionsSection = resource<EventSubscription>(RESOURCES.eventSubscriptions, {
  name: 'event-subscriptions',
  title: 'Event subscriptions',
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
    fields: SUBSCRIPTION_FIELDS,
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
                <ItemLink id={id} />
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
