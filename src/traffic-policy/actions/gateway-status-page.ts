import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-errors.ts';
import type { PolicyRequest } from '../policy-subjects.ts';
import type { StatusFile } from '../ports.ts';
import { allValues } from '../scope/header-map.ts';
import type { PolicyAnswer, PreparedAction } from '../steps.ts';

const MAX_ENDPOINTS = 50;

const title = z.string().trim().min(1).max(100);
const url = z
  .string()
  .max(500)
  .regex(/^(?:https?|tls|tcp):\/\/[^\s/?#@]+\/?$/i, 'must be the URL of an endpoint, such as https://cam.example.com')
  .transform((text) => text.toLowerCase().replace(/\/$/, ''));

const Config = z.strictObject({
  title,
  text: z.string().trim().max(500).optional(),
  endpoints: z.array(z.strictObject({ url, title })).min(1).max(MAX_ENDPOINTS),
});

/** Not a coding that the client refuses. */
const GZIP = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/i;
/** Browsers and caches keep it for so many seconds: shared caches, too, unless rules before it accept only some clients. */
const MAX_AGE_S = 30;
const NO_BODY = Buffer.alloc(0);
const NOT_ALLOWED: PolicyAnswer = {
  kind: 'answer',
  status: 405,
  headers: ['allow', 'GET, HEAD', 'content-type', 'text/plain; charset=utf-8'],
  body: Buffer.from('This page can only be read.\n'),
  refused: false,
};

/** Answers with a page that says whether endpoints are up, which is an action of our own. */
export function gatewayStatusPage(config: unknown, context: ActionContext): PreparedAction {
  const { title, text = '', endpoints } = parseConfig(Config, config);
  const { statusPage } = context.ports;
  if (statusPage === null) {
    // Agents would learn whether endpoints of others are up.
    const problem = 'only cloud endpoints have status pages; create one through the management API';
    throw refusal('ERR_NGROK_2201', problem, 'type');
  }
  const current = statusPage({ title, text, endpoints });
  return {
    ends: true,
    on_http_request: () => (request) => {
      if (request.method !== 'GET' && request.method !== 'HEAD') return NOT_ALLOWED;
      const page = current();
      return page instanceof Promise ? page.then((made) => answer(request, made)) : answer(request, page);
    },
  };
}

function answer(request: PolicyRequest, { headers, plain, zipped }: StatusFile): PolicyAnswer {
  const { tag, body } = GZIP.test(headerOf(request, 'accept-encoding')) ? zipped : plain;
  const isKnown = headerOf(request, 'if-none-match').includes(tag);
  const isForAll =
    request.ownCookies.size === 0 && request.responseCookies === undefined && headerOf(request, 'authorization') === '';
  const caching = `${isForAll ? 'public' : 'private'}, max-age=${MAX_AGE_S}`;
  const all = [
    ...headers,
    'cache-control',
    caching,
    'etag',
    tag,
    ...(body === zipped.body ? ['content-encoding', 'gzip'] : []),
  ];
  return { kind: 'answer', status: isKnown ? 304 : 200, headers: all, body: isKnown ? NO_BODY : body, refused: false };
}

const headerOf = ({ headers }: PolicyRequest, name: string): string => allValues(headers, name).join(',');
