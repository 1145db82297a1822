import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { NOTICE_POLICY, noticePage } from '../../lib/http/notice-page.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig, requireOwnCookies } from '../action-problems.ts';
import type { PolicyRequest } from '../policy-subjects.ts';
import { SEALING_MS, type UsedShareLink } from '../ports.ts';
import { pathOf } from '../scope/url-parts.ts';
import { type Cookies, SHARE, setCookie, shareCookies } from '../sign-in/sign-in-cookies.ts';
import { type PolicyAnswer, type PolicyError, type PreparedAction, policyError, type RequestResult } from '../steps.ts';

/** Tells browsers apart that open links. */
const BROWSER = `${SHARE}browser`;
const BROWSER_S = 600;

const PATH = '/ngrok/share/';
const TOKEN = /^[0-9A-Za-z]{27}_[0-9A-Za-z]{20,64}$/;

/** The path of the page is a secret: the next request must not name it as its referrer. */
const PRIVATE = ['cache-control', 'no-store', 'referrer-policy', 'no-referrer'];
const PAGE_HEADERS = ['content-type', 'text/html; charset=utf-8', ...PRIVATE, ...NOTICE_POLICY];

const Config = z.strictObject({ enforce: z.boolean().optional() });

/** Lets browsers in that have opened a link to this endpoint, and answers the addresses of links. */
export function gatewayShareLinks(config: unknown, context: ActionContext): PreparedAction {
  requireOwnCookies(context);
  const { enforce = true } = parseConfig(Config, config);
  return {
    ends: false,
    on_http_request: () => (request) => {
      const answer = atOwnPath(request, context);
      if (answer !== undefined) return answer;
      return admit(request, context, enforce);
    },
    on_excluded_request: (request) => atOwnPath(request, context),
  };
}

function admit(request: PolicyRequest, context: ActionContext, enforce: boolean): PolicyError | undefined {
  const link = openLink(request, context);
  context.record(request, 'gateway_share_links', { let_in: link !== null, link_id: link?.id ?? '' });
  if (link !== null || !enforce) return undefined;
  return request.connection.tls === null ? NEEDS_HTTPS : NEEDS_LINK;
}

/** Browsers keep the cookie for HTTPS only. */
const NEEDS_HTTPS = policyError(
  403,
  'ERR_GATEWAY_SHARE_LINK_NEEDED',
  'This endpoint is shared by links, which need HTTPS. Open it with https:// instead.',
);
const NEEDS_LINK = policyError(
  403,
  'ERR_GATEWAY_SHARE_LINK_NEEDED',
  'This endpoint is shared by links. Ask its owner for one, and open it in this browser.',
);
/** The same for all, so that nobody learns which tokens exist. */
const NO_SUCH_LINK = policyError(
  403,
  'ERR_GATEWAY_SHARE_LINK_INVALID',
  'This link does not work. It may have expired, or been used or revoked. Ask for another one.',
);

const TO_ENDPOINT: PolicyAnswer = {
  kind: 'answer',
  status: 303,
  headers: ['location', '/', ...PRIVATE],
  body: Buffer.alloc(0),
  refused: false,
};

const UNAVAILABLE = policyError(503, 'ERR_NGROK_2300', 'Links cannot be opened at the moment. Try again later.', [
  ...['retry-after', '5'],
]);

function atOwnPath(request: PolicyRequest, context: ActionContext): RequestResult {
  if (!request.clientTarget.startsWith(PATH) || request.connection.tls === null) return undefined;
  const token = pathOf(request.clientTarget).slice(PATH.length);
  const host = hostOf(request);
  if (request.method === 'POST') return opened(request, context, { token, host });
  return entrance(request, context, { token, host });
}

async function entrance(
  request: PolicyRequest,
  context: ActionContext,
  { token, host }: { token: string; host: string },
): Promise<PolicyAnswer | PolicyError> {
  // Opened here before, perhaps for the last time.
  if (openLink(request, context)?.id.endsWith(`_${token.split('_', 1)[0]}`)) return TO_ENDPOINT;
  const link = TOKEN.test(token) ? context.ports.shareLinks.withToken(token, host) : null;
  return link === null ? (tooMany(request, context) ?? NO_SUCH_LINK) : openingPage(request, host, link);
}

/** Chat programs and scanners visit links; only the button of this page opens one. */
function openingPage(request: PolicyRequest, host: string, { expiresAt }: UsedShareLink): PolicyAnswer {
  const until = `${new Date(expiresAt).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  const text = `Somebody has shared ${host} with you. This browser can use it until ${until}.`;
  const browser = browserOf(request.ownCookies) || randomBytes(16).toString('base64url');
  request.responseCookies = setCookie(BROWSER, browser, BROWSER_S, null);
  return {
    kind: 'answer',
    status: 200,
    headers: PAGE_HEADERS,
    body: Buffer.from(noticePage({ title: 'Shared with you', text, button: 'Open' })),
    refused: false,
  };
}

async function opened(
  request: PolicyRequest,
  context: ActionContext,
  { token, host }: { token: string; host: string },
): Promise<PolicyAnswer | PolicyError> {
  const { shareLinks, wallClock } = context.ports;
  const refusal = tooMany(request, context);
  if (refusal !== undefined) return refusal;
  if (!TOKEN.test(token)) return NO_SUCH_LINK;
  const browser = browserOf(request.ownCookies);
  let link: UsedShareLink | null;
  try {
    link = await shareLinks.open(token, host, browser, request.connection.clientIp);
  } catch (error) {
    context.trouble('ERR_NGROK_2300', `share link not opened: ${messageOf(error)}`);
    return UNAVAILABLE;
  }
  if (link === null) return NO_SUCH_LINK;
  const seconds = Math.ceil((link.expiresAt - wallClock()) / 1000);
  context.timeFor(request).spend(SEALING_MS);
  const sealed = shareLinks.cookies.seal(link.id, host);
  request.responseCookies = setCookie(cookieName(link.id), sealed, seconds, null);
  return TO_ENDPOINT;
}

function tooMany({ connection }: PolicyRequest, { ports }: ActionContext): PolicyError | undefined {
  const waitS = ports.shareLinks.countAttempt(connection.clientIp);
  if (waitS === null) return undefined;
  const message = 'Too many attempts to open links. Try again in a minute.';
  return policyError(429, 'ERR_GATEWAY_TOO_MANY_ATTEMPTS', message, ['retry-after', String(waitS)]);
}

/** The link that lets this browser in; null when none does. */
function openLink(request: PolicyRequest, context: ActionContext): UsedShareLink | null {
  if (request.ownCookies.size === 0) return null;
  const host = hostOf(request);
  const { shareLinks } = context.ports;
  const spend = () => context.timeFor(request).spend(SEALING_MS);
  for (const [name, sealed] of shareCookies(request.ownCookies)) {
    const id = shareLinks.cookies.open(sealed, host, spend);
    const link = id === null || name !== cookieName(id) ? null : shareLinks.find(id, host);
    if (link !== null) return link;
  }
  return null;
}

function browserOf(cookies: Cookies): string {
  return cookies.get(BROWSER)?.slice(0, 64) ?? '';
}

function cookieName(id: string): string {
  return SHARE + id.slice(id.lastIndexOf('_') + 1);
}

function hostOf({ clientHost }: PolicyRequest): string {
  return clientHost.replace(/:\d*$/, '').toLowerCase();
}
