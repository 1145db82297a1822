import type { Request, Response, Router } from 'express';
import { bodyParser } from '../../lib/http/api-middleware.ts';
import { escapeHtml, htmlPage, NOTICE_POLICY, noticePage, PAGE_STYLE } from '../../lib/http/notice-page.ts';
import { durationText } from '../../lib/terminal-text.ts';
import { acknowledge, silence } from '../messages/condition-records.ts';
import { MESSAGE_PATH, MessageLinks } from '../messages/message-links.ts';
import { nameOf, titleOf } from '../messages/message-words.ts';
import { BY_COMMAND } from '../store/command-access.ts';
import type { ConditionRow } from '../store/condition-history.ts';
import type { Store } from '../store/store.ts';
import { callerRefused, type FailedAttempts, type RefusesAddress } from './authentication.ts';
import { requireOwnPage } from './dashboard/dashboard-sessions.ts';
import { strictRouter } from './operation-router.ts';
import { badRequest } from './request.ts';

/** Stands in the history for anyone with the message. */
const BY_LINK = 'link';
const BODY = { maxBytes: 1024, timeoutMs: 10_000 };
const MAX_SHOWN = 5;
/** Minutes, in words. */
const SILENCES: Readonly<Record<string, string>> = {
  ...{ '60': '1 hour', '480': '8 hours', '1440': '1 day', '10080': '7 days' },
};
const HEADERS = {
  ...Object.fromEntries([NOTICE_POLICY]),
  'Cache-Control': 'no-store',
  // With no-referrer, browsers would not say which page sends a form.
  'Referrer-Policy': 'same-origin',
};
const GONE = {
  title: 'This link is no longer valid',
  text: 'It was changed, or is older than 7 days. The dashboard shows what is wrong, and acknowledges and silences it, too.',
  link: { href: '/#/condition-history', text: 'Open the dashboard' },
};
const STYLE = `${PAGE_STYLE}
form{margin:1.2em 0;display:flex;flex-wrap:wrap;gap:.6em;align-items:center}
select{font:inherit;min-height:44px;padding:.4em;border-radius:8px}
li{margin:.4em 0}`;

/**
 * The page to which links in messages lead. It asks before it changes anything: link scanners and previews follow links. The
 * signature of the link is all that it takes, so that people can act from a phone.
 */
export function messagePage(
  store: Store,
  { attempts, isRefused }: { attempts: FailedAttempts; isRefused: RefusesAddress },
): Router {
  const router = strictRouter();
  const links = new MessageLinks(store.box);
  const path = `${MESSAGE_PATH}:token`;
  /** @returns what the message was about; null: the link is not valid */
  const concerned = async (req: Request): Promise<ConditionRow[] | null> => {
    if (isRefused('dashboard', req.socket)) throw callerRefused(1212, 'dashboard');
    const id = links.messageOf(String(req.params.token), Date.parse(store.now()));
    if (id === null) {
      await attempts.slowDown(req.ip ?? '');
      return null;
    }
    const rows = store.conditionHistory.toldBy(id);
    return rows.length > 0 ? rows : null;
  };
  const answer = (res: Response, status: number, html: string) =>
    res.status(status).set(HEADERS).type('html').send(html);
  router.get(path, async (req, res) => {
    const rows = await concerned(req);
    if (rows === null) return void answer(res, 404, noticePage(GONE));
    answer(res, 200, pageOf(rows, store.now()));
  });
  const parse = (bytes: Buffer) => new URLSearchParams(bytes.toString());
  const unreadable = () => badRequest({ code: 231, text: 'the form cannot be read' });
  router.post(path, bodyParser({ ...BODY, parse, unreadable }), async (req, res) => {
    requireOwnPage(req);
    const form: URLSearchParams = req.body;
    const rows = await concerned(req);
    if (rows === null) return void answer(res, 404, noticePage(GONE));
    const [act, minutes] = [form.get('act'), form.get('minutes') ?? ''];
    await store.database.write(
      () => {
        const present = rows.flatMap(({ id }) => store.conditionHistory.get(id) ?? []);
        if (act === 'acknowledge') acknowledge(store, present, BY_LINK);
        else if (act === 'silence' && Object.hasOwn(SILENCES, minutes))
          silence(store, present, Number(minutes), BY_LINK);
        else if (act === 'resume') silence(store, present, 0, BY_LINK);
        else throw badRequest({ code: 231, text: 'the form has no action that is known' });
      },
      { ...BY_COMMAND, from: req.ip ?? null },
    );
    res.set(HEADERS).redirect(303, req.originalUrl);
  });
  return router;
}

function pageOf(rows: readonly ConditionRow[], now: string): string {
  const open = rows.filter(({ ended_at }) => ended_at === null);
  const items = rows.slice(0, MAX_SHOWN).map((row) => `<li>${escapeHtml(itemText(row))}</li>`);
  const more = rows.length > MAX_SHOWN ? [`<li>and ${rows.length - MAX_SHOWN} more</li>`] : [];
  const isAcknowledged = open.length > 0 && open.every(({ acknowledged_at }) => acknowledged_at !== null);
  const until = rows.map(({ silenced_until }) => silenced_until ?? '').reduce((a, b) => (a > b ? a : b));
  const isSilenced = until > now;
  const states = [
    open.length === 0 ? 'All of it is over.' : null,
    isAcknowledged ? 'It is acknowledged: no reminders come until it is over.' : null,
    // The page has no script, so it does not know the reader's clock.
    isSilenced
      ? `It is silenced for another ${lengthUntil(until, now)}, until ${until}: no messages about it come.`
      : null,
  ].filter((state) => state !== null);
  const form = (act: string, button: string, more = '') =>
    `<form method="post"><input type="hidden" name="act" value="${act}">${more}<button>${button}</button></form>`;
  const options = Object.entries(SILENCES).map(([minutes, text]) => `<option value="${minutes}">${text}</option>`);
  const choice = `<label>No messages about it for <select name="minutes">${options.join('')}</select></label>`;
  return htmlPage(
    'What the message is about',
    `<ul>${[...items, ...more].join('\n')}</ul>
${states.map((state) => `<p role="status">${escapeHtml(state)}</p>`).join('\n')}
${open.length > 0 && !isAcknowledged ? form('acknowledge', 'Acknowledge') : ''}
${isSilenced ? form('resume', 'Send messages again') : form('silence', 'Silence', choice)}
<p><a href="/#/condition-history">Open the dashboard</a></p>
`,
    STYLE,
  );
}

const lengthUntil = (until: string, now: string) => durationText((Date.parse(until) - Date.parse(now)) / 1000);

function itemText(row: ConditionRow): string {
  const { began_at, ended_at } = row;
  const subject = [titleOf(row), nameOf(row)].filter((text) => text !== '').join(': ');
  return `${subject}, ${ended_at === null ? `since ${began_at}` : `from ${began_at} to ${ended_at}`}`;
}
