import { z } from 'zod';
import { Headers } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { UrlReplacement } from '../action-parts/find-replace.ts';
import { headerTemplates } from '../action-parts/header-templates.ts';
import { parseConfig } from '../action-problems.ts';
import { PolicyFailure, refusal } from '../policy-errors.ts';
import { requestUrl } from '../scope/http-variables.ts';
import type { PreparedAction } from '../steps.ts';
import { NO_ERROR } from './restrict-ips.ts';

const RedirectConfig = z.strictObject({
  from: z.string().optional(),
  to: z.string().min(1),
  status_code: z.int().min(300).max(399).optional(),
  headers: Headers.optional(),
});

const EMPTY = Buffer.alloc(0);

export function redirect(config: unknown, context: ActionContext): PreparedAction {
  const { from = null, to, status_code: status = 302, headers: given = {} } = parseConfig(RedirectConfig, config);
  const replacement = new UrlReplacement(from === '' ? null : from, to, false, context);
  const headers = headerTemplates(given, context);
  if (headers.names.has('location')) throw refusal('ERR_NGROK_2219', 'config.to sets location', 'config.headers');
  return {
    ends: false,
    on_http_request: () => (request) => {
      const scope = context.scopeOf(request);
      const before = requestUrl(scope);
      const after = replacement.apply(before, scope);
      const location = after === null ? before : absolute(after.url, before);
      context.record(request, 'redirect', { matches: after?.matches ?? [], url: location, error: NO_ERROR });
      if (isSame(location, before)) return undefined;
      const all = [...headers.lasting(scope), 'location', location];
      return { kind: 'answer', status, headers: all, body: EMPTY, refused: false };
    },
  };
}

/** @returns an absolute URL, percent-encoded and without line breaks, which would end the header */
function absolute(url: string, base: string): string {
  if (!URL.canParse(url, base)) throw new PolicyFailure('ERR_NGROK_2300', 'config.to did not produce a valid URL');
  return new URL(url, base).href;
}

function isSame(url: string, other: string): boolean {
  return url === other || (URL.canParse(other) && new URL(other).href === url);
}
