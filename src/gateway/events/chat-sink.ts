import { escapeHtml } from '../../lib/http/notice-page.ts';
import { shortBytes, shortText } from '../../lib/short-text.ts';
import type { MessageTarget } from '../../management/resources/message-target.ts';
import type { publicRequest } from '../../traffic-policy/public-request.ts';
import type { EventSink } from './event-sink.ts';
import { messageOfEvent, type SentMessage } from './message.ts';
import { type EventPost, postEvent } from './post-event.ts';

type ChatTarget = Exclude<MessageTarget, { kind: 'email' }>;
type Posted = { readonly url: string; readonly json: object; readonly headers?: Readonly<Record<string, string>> };
type PostsOf<Kind extends ChatTarget['kind']> = (
  target: Extract<ChatTarget, { kind: Kind }>,
  message: SentMessage,
) => readonly Posted[];

/** Characters that chat programs take, with room for what is around them. Of ntfy, bytes: it takes 4,096, and 8,192 of JSON. */
const MAX_TEXT = 2_800;
const MAX_TITLE = 200;
const MAX_SLACK_HEADER = 150;
const COLOURS = { critical: 0xd1_24_2f, warning: 0xbf_87_00, resolved: 0x1a_7f_37, info: 0x57_60_6a } as const;
const MARKS = { critical: '🔴', warning: '🟡', resolved: '🟢', info: 'ℹ️' } as const;
/** Of ntfy: 5 sounds for long, 4 at once, 3 as usual. */
const PRIORITIES = { critical: 5, warning: 4, resolved: 3, info: 3 } as const;
const TAGS = { critical: 'red_circle', warning: 'yellow_circle', resolved: 'green_circle', info: 'information_source' };
const PAGERDUTY = { us: 'https://events.pagerduty.com', eu: 'https://events.eu.pagerduty.com' };
const PAGERDUTY_SEVERITIES = { critical: 'critical', warning: 'warning', resolved: 'info', info: 'info' } as const;

/** Sends messages, and events as messages, in the form of a chat program. */
export function chatSink(target: ChatTarget, request: typeof publicRequest): EventSink {
  const postsOf = POSTS[target.kind] as PostsOf<ChatTarget['kind']>;
  return {
    batch: 1,
    async send(events, signal) {
      let answer = '';
      for (const message of events.map(messageOfEvent))
        for (const { url, json, headers } of postsOf(target, message)) {
          const post: EventPost = {
            url,
            body: JSON.stringify(json),
            headers: { 'idempotency-key': message.id, ...headers },
          };
          answer = await postEvent(post, request, signal, true);
        }
      return answer;
    },
  };
}

const titleOf = ({ title }: SentMessage) => shortText(title, MAX_TITLE);
const textOf = ({ lines, remedy }: SentMessage) =>
  shortText([...lines, ...(remedy === null ? [] : [`What to do: ${remedy}`])].join('\n'), MAX_TEXT);

/** By kind. A title comes first, so that notifications on a locked screen say what has happened. */
const POSTS: { readonly [Kind in ChatTarget['kind']]: PostsOf<Kind> } = {
  // https://docs.ntfy.sh/publish/#publish-as-json
  ntfy: ({ url, token }, message) => {
    const { links, severity } = message;
    const split = url.lastIndexOf('/');
    const [first] = links;
    const json = {
      ...{ topic: url.slice(split + 1), title: titleOf(message) },
      message: shortBytes(textOf(message) || titleOf(message), MAX_TEXT),
      ...{ priority: PRIORITIES[severity], tags: [TAGS[severity]], ...(first && { click: first.url }) },
      actions: links.map((link) => ({ action: 'view', label: link.text, url: link.url })),
    };
    return [{ url: url.slice(0, split + 1), json, ...(token && { headers: { authorization: `Bearer ${token}` } }) }];
  },

  // https://api.slack.com/messaging/webhooks
  slack: ({ url = '' }, message) => {
    // Names of devices and texts of upstreams are no markup.
    const plain = (text: string) => ({ type: 'plain_text', text, emoji: false });
    const title = `${MARKS[message.severity]} ${titleOf(message)}`;
    const text = textOf(message);
    const elements = message.links.map((link) => ({ type: 'button', text: plain(link.text), url: link.url }));
    const blocks = [
      { type: 'header', text: plain(shortText(title, MAX_SLACK_HEADER)) },
      ...(text === '' ? [] : [{ type: 'section', text: plain(text) }]),
      ...(elements.length > 0 ? [{ type: 'actions', elements }] : []),
    ];
    const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
    return [{ url, json: { text: title.replace(/[&<>]/g, (each) => escapes[each] ?? each), blocks } }];
  },

  // https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
  teams: ({ url = '' }, message) => {
    const block = (text: string, more: object) => ({
      type: 'TextBlock',
      text: markdownless(text, MAX_TEXT),
      wrap: true,
      ...more,
    });
    const content = {
      ...{ $schema: 'http://adaptivecards.io/schemas/adaptive-card.json', type: 'AdaptiveCard', version: '1.4' },
      body: [
        block(`${MARKS[message.severity]} ${titleOf(message)}`, { weight: 'bolder', size: 'medium' }),
        ...textOf(message)
          .split('\n')
          .map((line) => block(line, { spacing: 'small' })),
      ],
      actions: message.links.map((link) => ({ type: 'Action.OpenUrl', title: link.text, url: link.url })),
    };
    const attachment = { contentType: 'application/vnd.microsoft.card.adaptive', content };
    return [{ url, json: { type: 'message', attachments: [attachment] } }];
  },

  // https://discord.com/developers/docs/resources/webhook#execute-webhook
  discord: ({ url = '' }, message) => {
    const links = message.links.map((link) => `[${link.text}](${link.url})`).join(' · ');
    const embed = {
      title: markdownless(titleOf(message), MAX_TITLE),
      description: `${markdownless(textOf(message), MAX_TEXT)}\n\n${links}`.trim(),
      ...{ color: COLOURS[message.severity], timestamp: message.at },
    };
    return [{ url, json: { embeds: [embed], allowed_mentions: { parse: [] } } }];
  },

  // https://core.telegram.org/bots/api#sendmessage
  telegram: ({ bot_token, chat_id }, message) => {
    const links = message.links.map((link) => `<a href="${escapeHtml(link.url)}">${escapeHtml(link.text)}</a>`);
    const title = `${MARKS[message.severity]} <b>${escapeHtml(titleOf(message))}</b>`;
    const text = [title, escapeHtml(textOf(message)), links.join(' · ')].filter((part) => part !== '').join('\n\n');
    const json = { chat_id, text, parse_mode: 'HTML', link_preview_options: { is_disabled: true } };
    return [{ url: `https://api.telegram.org/bot${bot_token}/sendMessage`, json }];
  },

  // https://developer.pagerduty.com/docs/send-alert-event
  pagerduty: ({ region, routing_key }, message) => {
    const { id, kind, severity, incident, ended, at, links } = message;
    const post = (event_action: 'trigger' | 'resolve', dedup_key: string): Posted => ({
      url: `${PAGERDUTY[region]}/v2/enqueue`,
      json: {
        ...{ routing_key, event_action, dedup_key },
        payload: {
          ...{ summary: titleOf(message), source: 'device-agent gateway', severity: PAGERDUTY_SEVERITIES[severity] },
          ...{ timestamp: at, custom_details: { text: textOf(message) } },
        },
        links: links.map((link) => ({ href: link.url, text: link.text })),
      },
    });
    const over = ended.map((each) => post('resolve', each));
    if (kind === 'over') return over;
    const open = post('trigger', incident ?? id);
    // What nothing follows must not stay open.
    return [...over, open, ...(NOTHING_FOLLOWS.has(kind) || severity === 'resolved' ? [post('resolve', id)] : [])];
  },
};

const NOTHING_FOLLOWS: ReadonlySet<SentMessage['kind']> = new Set(['event', 'test']);

/**
 * Text that a reader of Markdown shows as it is: names of devices and texts of upstreams are no markup.
 * @param max characters, with those that are added
 */
function markdownless(text: string, max: number): string {
  const escaped = shortText(text.replace(/[\\*_~`|>#[\]()]/g, '\\$&'), max);
  // A last backslash that has lost what it escapes.
  return escaped.replace(/(?<!\\)((?:\\\\)*)\\$/, '$1');
}
