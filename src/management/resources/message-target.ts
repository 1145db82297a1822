import { z } from 'zod';
import { refused } from './refusal.ts';
import { body, text } from './resource.ts';

/** The error code of a target that is not valid. */
const NO_TARGET = 5100;
const SECRET_BYTES = 1024;
const MAX_RECIPIENTS = 20;
/** Characters of a CA's certificate. */
const MAX_CA = 32_768;
/** No display name: it would need quoting in the header. */
const ADDRESS = /^[^\s@<>,;:"\\()[\]]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;
export const HOSTNAME = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45})$/;
const KEPT = 'Required for a new destination; left out later, the present one stays. Not in answers.';

const address = z.string().regex(ADDRESS, refused(NO_TARGET, 'must be an email address, without a name'));

/** An optional secret: destinations keep theirs when it is left out. */
const secret = (what: string) => text(SECRET_BYTES, NO_TARGET, what).optional();

/** A URL that is a secret, as those are that chat programs issue. */
const secretUrl = (what: string) =>
  secret(`${what} ${KEPT}`).refine(
    (value) => value === undefined || isUrl(value, ['https:']),
    refused(NO_TARGET, 'must be an https:// URL without credentials'),
  );

function isUrl(value: string, protocols: readonly string[]): boolean {
  const url = URL.canParse(value) ? new URL(value) : null;
  return url !== null && protocols.includes(url.protocol) && url.username === '' && url.password === '';
}

/** The topic is the last part of the path. */
const isTopic = (value: string) => isUrl(value, ['https:', 'http:']) && /\/[\w-]{1,64}$/.test(new URL(value).pathname);

/** What people read messages in: what of a target is sent, what of it is a secret, and which secrets it needs. */
export const MESSAGE_TARGETS = {
  email: {
    text: 'Email, by your SMTP server.',
    sent: body({
      to: z
        .array(address)
        .min(1, refused(NO_TARGET, 'must have an address'))
        .max(MAX_RECIPIENTS, refused(NO_TARGET, `more than ${MAX_RECIPIENTS} addresses`))
        .describe(`Who gets the messages, at most ${MAX_RECIPIENTS} addresses.`),
      from: address.describe('The address of the sender, which the server has to accept.'),
      host: z
        .string()
        .regex(HOSTNAME, refused(NO_TARGET, 'must be a hostname or an IP address, without port'))
        .describe('The hostname or IP address of the SMTP server.'),
      port: z.int().min(1).max(65_535).default(587).describe('The port of the SMTP server; by default 587.'),
      security: z
        .enum(['starttls', 'tls', 'none'])
        .default('starttls')
        .describe('`starttls` (the default), `tls` from the first byte, as at port 465, or `none`.'),
      username: text(320, NO_TARGET, 'The name to log in with; left out: no login.').optional(),
      password: secret('The password of the login; left out later, the present one stays. Not in answers.'),
      ca_pem: z
        .string()
        .max(MAX_CA)
        .optional()
        .describe('The CA certificates as PEM that the server is verified with; by default, the public ones.'),
    }),
    secrets: ['password'],
    needed: [],
  },
  ntfy: {
    text: 'A topic of ntfy, at ntfy.sh or a server of yours.',
    sent: body({
      url: text(2048, NO_TARGET, 'The URL of the topic, such as `https://ntfy.sh/my-topic`.').refine(
        isTopic,
        refused(NO_TARGET, 'must be the URL of a topic, such as https://ntfy.sh/my-topic'),
      ),
      token: secret('An access token of ntfy; left out later, the present one stays. Not in answers.'),
    }),
    secrets: ['token'],
    needed: [],
  },
  slack: {
    text: 'A channel of Slack.',
    sent: body({ url: secretUrl('The URL of an incoming webhook of Slack.') }),
    secrets: ['url'],
    needed: ['url'],
  },
  teams: {
    text: 'A channel of Microsoft Teams.',
    sent: body({ url: secretUrl('The URL of a workflow that posts what it gets by webhook.') }),
    secrets: ['url'],
    needed: ['url'],
  },
  discord: {
    text: 'A channel of Discord.',
    sent: body({ url: secretUrl('The URL of a webhook of Discord.') }),
    secrets: ['url'],
    needed: ['url'],
  },
  telegram: {
    text: 'A chat of Telegram.',
    sent: body({
      chat_id: z
        .string()
        .regex(/^(?:-?\d{1,20}|@\w{1,64})$/, refused(NO_TARGET, 'must be the number of a chat, or @ and a channel'))
        .describe('The number of the chat, or `@` and the name of a channel.'),
      bot_token: secret(`The token of the bot. ${KEPT}`).refine(
        (value) => value === undefined || /^\d{1,20}:[\w-]{1,100}$/.test(value),
        refused(NO_TARGET, 'must be a number, a colon and a key, as BotFather shows it'),
      ),
    }),
    secrets: ['bot_token'],
    needed: ['bot_token'],
  },
  pagerduty: {
    text: 'A service of PagerDuty, by its Events API v2.',
    sent: body({
      region: z.enum(['us', 'eu']).default('us').describe('Where the account is: `us` (the default) or `eu`.'),
      routing_key: secret(`The integration key of the service. ${KEPT}`).refine(
        (value) => value === undefined || /^\w{32}$/.test(value),
        refused(NO_TARGET, 'must have 32 letters and digits'),
      ),
    }),
    secrets: ['routing_key'],
    needed: ['routing_key'],
  },
} as const satisfies Record<
  string,
  { text: string; sent: z.ZodObject; secrets: readonly string[]; needed: readonly string[] }
>;

export type MessageKind = keyof typeof MESSAGE_TARGETS;
export const MESSAGE_KINDS = Object.keys(MESSAGE_TARGETS) as readonly MessageKind[];

/** A target of one kind, with its secrets. */
export type MessageTargetOf<Kind extends MessageKind> = { kind: Kind } & z.output<
  (typeof MESSAGE_TARGETS)[Kind]['sent']
>;
export type MessageTarget = { [Kind in MessageKind]: MessageTargetOf<Kind> }[MessageKind];

export function isMessageTarget(target: { readonly kind: string }): target is MessageTarget {
  return Object.hasOwn(MESSAGE_TARGETS, target.kind);
}

const ADDRESS_TEXT = 'Where it is, without secrets.';
type SecretOf<Kind extends MessageKind> = (typeof MESSAGE_TARGETS)[Kind]['secrets'][number];

/** What answers show of a target: all but its secrets. */
export type ShownMessageTarget<Kind extends MessageKind> = Omit<MessageTargetOf<Kind>, 'kind' | SecretOf<Kind>> & {
  address: string;
};

/** The schemas of {@link ShownMessageTarget}, by kind; null for a target of another kind. */
export const SHOWN_MESSAGE_TARGETS = Object.fromEntries(
  MESSAGE_KINDS.map((kind) => {
    const {
      sent,
      secrets,
      text: what,
    }: { sent: z.ZodObject; secrets: readonly string[]; text: string } = MESSAGE_TARGETS[kind];
    const open = Object.entries(sent.shape).filter(([name]) => !secrets.includes(name));
    const shape = { ...Object.fromEntries(open), address: z.string().describe(ADDRESS_TEXT) };
    return [kind, z.object(shape).nullable().default(null).describe(`${what} Null for another kind.`)];
  }),
) as unknown as { [Kind in MessageKind]: z.ZodType<ShownMessageTarget<Kind> | null> };

/** The members of a request, by kind. */
export const SENT_MESSAGE_TARGETS = Object.fromEntries(
  MESSAGE_KINDS.map((kind) => [
    kind,
    MESSAGE_TARGETS[kind].sent.optional().describe(`${MESSAGE_TARGETS[kind].text} Not in ngrok's API.`),
  ]),
) as unknown as { [Kind in MessageKind]: z.ZodOptional<(typeof MESSAGE_TARGETS)[Kind]['sent']> };
