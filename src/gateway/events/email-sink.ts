import { isIP } from 'node:net';
import { hostname } from 'node:os';
import MailComposer from 'nodemailer/lib/mail-composer';
import SmtpConnection from 'nodemailer/lib/smtp-connection';
import { escapeHtml } from '../../lib/http/notice-page.ts';
import { shortText } from '../../lib/short-text.ts';
import { printable } from '../../lib/terminal-text.ts';
import type { MessageTargetOf } from '../../management/resources/message-target.ts';
import type { publicAddress } from '../../traffic-policy/public-request.ts';
import { type EventSink, NotAccepted } from './event-sink.ts';
import { messageOfEvent, type SentMessage } from './message.ts';

type EmailTarget = MessageTargetOf<'email'>;
type SmtpError = Error & { code?: string; response?: unknown; responseCode?: unknown; command?: string };

const MAX_ANSWER = 300;
/** Commands that are about one message, rather than about who sends it. */
const ABOUT_MESSAGE: ReadonlySet<string> = new Set(['RCPT TO', 'DATA', 'API']);
const STATES = {
  critical: ['Critical', '#b3261e'],
  warning: ['Warning', '#8a6100'],
  resolved: ['Over', '#1a6e34'],
  info: ['Message', '#4a5560'],
} as const;

/**
 * Sends messages, and events as messages, by SMTP (RFC 5321) with STARTTLS (RFC 3207), TLS (RFC 8314) or neither.
 * @param resolve the address of the server, if it may be reached
 */
export function emailSink(target: EmailTarget, resolve: typeof publicAddress): Pick<EventSink, 'send'> {
  return {
    async send(events, signal) {
      let answer = '';
      for (const message of events.map(messageOfEvent)) answer = await sendMail(target, message, resolve, signal);
      return answer;
    },
  };
}

async function sendMail(
  target: EmailTarget,
  message: SentMessage,
  resolve: typeof publicAddress,
  signal: AbortSignal,
): Promise<string> {
  const { host, port, security, username, password = '', ca_pem: ca, from, to } = target;
  const mail = await composed(target, message);
  const address = await resolve(host);
  signal.throwIfAborted();
  const connection = new SmtpConnection({
    ...{ host: address, port, secure: security === 'tls', requireTLS: security === 'starttls' },
    ignoreTLS: security === 'none',
    // The certificate is that of the name, although the connection goes to an address that was checked.
    ...(isIP(host) ? {} : { servername: host }),
    // The deadline of the delivery comes first.
    ...{ name: helloName(from), greetingTimeout: 0 },
    tls: { minVersion: 'TLSv1.2', ...(ca !== undefined && { ca }) },
    maxResponseSize: 65_536,
  });
  const failed = new Promise<never>((_resolve, reject) => connection.once('error', reject));
  failed.catch(() => {}); // reported by what waits for it
  const abort = () => connection.close();
  signal.addEventListener('abort', abort, { once: true });
  const step = <T>(run: (done: (error: Error | null | undefined, value?: T) => void) => void) =>
    Promise.race([
      failed,
      new Promise<T | undefined>((done, reject) => run((error, value) => (error ? reject(error) : done(value)))),
    ]);
  try {
    await step((done) => connection.connect((error) => done(error as Error | undefined)));
    if (username !== undefined)
      await step((done) => connection.login({ user: username, pass: password }, (error) => done(error)));
    const info = await step<{ response?: string; rejected?: readonly string[] }>((done) =>
      connection.send({ from, to }, mail, (error, value) => done(error, value as never)),
    );
    connection.quit();
    const rejected = info?.rejected ?? [];
    return shown(
      `${host} answered ${info?.response ?? ''}${rejected.length > 0 ? `, but refused ${rejected.join(', ')}` : ''}`,
    );
  } catch (error) {
    signal.throwIfAborted();
    throw explained(error as SmtpError, host);
  } finally {
    signal.removeEventListener('abort', abort);
    connection.close();
  }
}

/** @returns a {@link NotAccepted} when the server has answered, else an error that says what has failed */
function explained(error: SmtpError, host: string): Error {
  const { code, response, responseCode, command = '' } = error;
  const said = typeof response === 'string' ? response : null;
  if (code === 'EAUTH')
    return new NotAccepted(shown(`${host} refuses the login: ${said ?? error.message}`), false, null);
  if (said === null || typeof responseCode !== 'number') return new Error(shown(`${host}: ${error.message}`));
  // A greylisting server answers 4xx, and takes the same message later.
  const isRefusal = responseCode >= 500 && ABOUT_MESSAGE.has(command);
  return new NotAccepted(shown(`${host} answered ${said}`), isRefusal, null);
}

function shown(text: string): string {
  return shortText(printable(text.replaceAll('\r', '').replaceAll('\n', ' ')), MAX_ANSWER);
}

/** What the client calls itself: a full name, which servers want. */
function helloName(from: string): string {
  const own = hostname();
  return own.includes('.') ? own : `${own.replace(/[^A-Za-z0-9-]/g, '') || 'gateway'}.${domainOf(from)}`;
}

const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1);

function composed({ from, to }: EmailTarget, message: SentMessage): Promise<Buffer> {
  const { id, incident, at, title } = message;
  const idOf = (name: string) => `<${name}@${domainOf(from)}>`;
  const composer = new MailComposer({
    ...{ from: { name: 'Gateway', address: from }, to: [...to], subject: title, date: new Date(at) },
    messageId: idOf(id),
    // Mail programs show what belongs together as one conversation.
    ...(incident !== null && incident !== id && { inReplyTo: idOf(incident), references: [idOf(incident)] }),
    headers: { 'Auto-Submitted': 'auto-generated', 'X-Auto-Response-Suppress': 'All' },
    ...{ text: textOf(message), html: htmlOf(message) },
  });
  return composer.compile().build();
}

function textOf({ title, lines, remedy, links, id }: SentMessage): string {
  const parts = [
    [title],
    lines,
    remedy === null ? [] : [`What to do: ${remedy}`],
    links.map(({ text, url }) => `${text}: ${url}`),
    [`-- \n${id}`],
  ];
  return `${parts
    .filter((part) => part.length > 0)
    .map((part) => part.join('\n'))
    .join('\n\n')}\n`;
}

/** Readable in mail programs with a dark scheme, whether they follow it, or invert colours on their own. */
export function htmlOf({ severity, title, lines, remedy, links, id }: SentMessage): string {
  const [state, colour] = STATES[severity];
  const paragraph = (html: string, style = '') => `<p style="margin:0 0 10px;${style}">${html}</p>`;
  const buttons = links.map(
    ({ text, url }) =>
      `<a class="button" href="${escapeHtml(url)}" style="display:inline-block;margin:0 8px 8px 0;padding:8px 14px;border:1px solid #8a94a0;border-radius:6px;color:#0b57d0;text-decoration:none">${escapeHtml(text)}</a>`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><meta name="supported-color-schemes" content="light dark">
<title>${escapeHtml(title)}</title>
<style>
:root { color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  .page { background: #14181c !important; color: #e6e9ec !important; }
  .note { color: #a9b2bb !important; }
  .button { color: #a8c7fa !important; border-color: #6b7681 !important; }
}
</style></head>
<body class="page" style="margin:0;padding:20px;background:#ffffff;color:#1b1f23;font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif">
<div style="max-width:600px;margin:0 auto">
<p style="margin:0 0 12px"><span style="display:inline-block;padding:2px 10px;border-radius:10px;background:${colour};color:#ffffff;font-size:13px;font-weight:600">${state}</span></p>
<h1 style="margin:0 0 12px;font-size:20px;line-height:1.3;overflow-wrap:anywhere">${escapeHtml(title)}</h1>
${lines.map((line) => paragraph(escapeHtml(line), 'overflow-wrap:anywhere')).join('\n')}
${remedy === null ? '' : paragraph(`<strong>What to do:</strong> ${escapeHtml(remedy)}`, 'overflow-wrap:anywhere')}
${buttons.length === 0 ? '' : `<p style="margin:18px 0 10px">${buttons.join('\n')}</p>`}
<p class="note" style="margin:18px 0 0;color:#5c6670;font-size:12px">${escapeHtml(id)}</p>
</div></body></html>
`;
}
