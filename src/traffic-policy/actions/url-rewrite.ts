import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { UrlReplacement } from '../action-parts/find-replace.ts';
import { parseConfig } from '../action-problems.ts';
import { bytesOfText } from '../kept-values.ts';
import { PolicyFailure } from '../policy-errors.ts';
import { requestUrl } from '../scope/http-variables.ts';
import type { PreparedAction } from '../steps.ts';
import { replaceHost } from './add-headers.ts';
import { NO_ERROR } from './restrict-ips.ts';

const UrlRewriteConfig = z.strictObject({ from: z.string().optional(), to: z.string().min(1) });

export function urlRewrite(config: unknown, context: ActionContext): PreparedAction {
  const { from, to } = parseConfig(UrlRewriteConfig, config);
  const replacement = new UrlReplacement(from ? from : null, to, true, context);
  return {
    ends: false,
    on_http_request: () => (request) => {
      const scope = context.scopeOf(request);
      const before = requestUrl(scope);
      const after = replacement.apply(before, scope);
      context.record(request, 'url_rewrite', {
        matches: after?.matches ?? [],
        url: after?.url ?? before,
        error: NO_ERROR,
      });
      if (after === null || after.url === before) return undefined;
      const { authority, target } = partsOf(after.url);
      scope.hold(bytesOfText(after.url), 'response');
      request.target = target;
      if (authority !== null && authority !== partsOf(before).authority) replaceHost(request.headers, authority);
      scope.changed();
      return undefined;
    },
  };
}

/**
 * The parts of a URL for the request line and the Host header, without characters that would end either. A pattern may
 * have taken the authority with the path, as `/.*` does: the present one is kept then.
 */
function partsOf(url: string): { authority: string | null; target: string } {
  const [, given, path = ''] = /^(?:[a-z][a-z0-9+.-]*:(?:\/\/([^/?#]*))?)?([^#]*)/i.exec(url) ?? [];
  const authority = given === undefined || (given === '' && path !== '') ? null : given;
  if (authority !== null && !/^[\w.:[\]-]+$/.test(authority)) {
    throw new PolicyFailure('ERR_NGROK_2300', 'the rewritten URL has no host');
  }
  const rest = path.replace(/[^\x21-\x7e]/gu, percentEncoded);
  return { authority, target: rest.startsWith('/') ? rest : `/${rest}` };
}

function percentEncoded(character: string): string {
  return Array.from(Buffer.from(character), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
}
