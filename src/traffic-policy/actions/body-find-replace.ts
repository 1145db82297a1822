import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import type { ActionContext } from '../action-context.ts';
import { prepareReplacement, Replacement, replacementsOf } from '../action-parts/find-replace.ts';
import { decodedBody, forgetBytes } from '../action-parts/message-body.ts';
import { parseConfig } from '../action-problems.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type { PolicyRequest, PolicyResponse, PolicyScope } from '../policy-subjects.ts';
import { firstValue, parseMediaType } from '../scope/header-map.ts';
import { type PreparedAction, policyError } from '../steps.ts';
import type { TextReplacement } from '../text-replacements.ts';

const MAX_BODY = 1024 * 1024;

const BodyFindReplaceConfig = z.strictObject({ replacements: replacementsOf(Replacement) });

export function requestBodyFindReplace(config: unknown, context: ActionContext): PreparedAction {
  const replace = prepare(config, context);
  return {
    ends: false,
    on_http_request: () => async (request) => {
      const body = await request.readBody(MAX_BODY);
      if (body === null) return TOO_LONG;
      const { headers } = request;
      const isLong = firstValue(headers, 'content-length') !== undefined;
      // A request without a body cannot get one, though some patterns match an empty text.
      const changed = body.length === 0 ? UNCHANGED : await replace(body, headers, context.scopeOf(request));
      context.record(request, 'request_body_find_replace', { replacements: changed.matches });
      if (changed.body === null) return undefined;
      forgetBytes(headers);
      if (isLong) headers.push('content-length', String(changed.body.length));
      request.replaceBody(changed.body);
      request.scope?.changed();
      return undefined;
    },
  };
}

/** A body that cannot be searched reaches nobody: the patterns may be there to keep secrets. */
export function responseBodyFindReplace(config: unknown, context: ActionContext): PreparedAction {
  const replace = prepare(config, context);
  return {
    ends: false,
    on_http_response: () => (request, response) => {
      if (request.method === 'HEAD') forgetBytes(response.headers);
      if (request.method === 'HEAD' || response.readBody === undefined) {
        context.record(request, 'response_body_find_replace', { replacements: [] });
        request.scope?.changed();
        return undefined;
      }
      return replaceInResponse(request, response, response.readBody);
    },
  };

  async function replaceInResponse(
    request: PolicyRequest,
    response: PolicyResponse,
    readBody: NonNullable<PolicyResponse['readBody']>,
  ): Promise<undefined> {
    requireWhole(response);
    const body = response.body ?? (await readBody(MAX_BODY));
    if (body === null) throw failure(`the body is incomplete, or longer than ${MAX_BODY} bytes`);
    // With compress-response before this action, the encoding that the headers name is yet to come.
    const isEncodedLater = response.compression !== undefined;
    const changed = await replace(body, isEncodedLater ? [] : response.headers, context.scopeOf(request));
    context.record(request, 'response_body_find_replace', { replacements: changed.matches });
    if (changed.body === null) return;
    response.body = changed.body;
    if (!isEncodedLater) {
      forgetBytes(response.headers);
      response.headers.push('content-length', String(changed.body.length));
    }
    request.scope?.changed();
  }
}

const TOO_LONG = policyError(
  413,
  'ERR_NGROK_2300',
  `The body is incomplete, or longer than the ${MAX_BODY} bytes that the endpoint's traffic policy can search.`,
);

interface Changed {
  /** Null when nothing has matched. */
  body: Buffer | null;
  matches: readonly object[];
}

const UNCHANGED: Changed = { body: null, matches: [] };

type Replace = (body: Buffer, headers: readonly string[], scope: PolicyScope) => Promise<Changed>;

function prepare(config: unknown, context: ActionContext): Replace {
  const { replacements } = parseConfig(BodyFindReplaceConfig, config);
  const prepared = replacements.map((item, at) => prepareReplacement(item, `config.replacements[${at}]`, context));
  return async (body, headers, scope) => {
    const bytes = await decodedBody(body, headers, MAX_BODY).catch((error: unknown) => {
      throw failure(messageOf(error), error);
    });
    // Bytes in another encoding stay as they are, with one character each.
    const encoding = isUtf8(bytes) ? 'utf8' : 'latin1';
    const wanted = prepared.map((each) => inEncoding(each(scope), encoding));
    const { text, matches } = await context.ports.replaceIn(bytes.toString(encoding), wanted);
    return { body: matches.length === 0 ? null : Buffer.from(text, encoding), matches };
  };
}

function inEncoding({ pattern, to }: TextReplacement, encoding: 'utf8' | 'latin1'): TextReplacement {
  return { pattern, to: encoding === 'utf8' ? to : Buffer.from(to).toString('latin1') };
}

/** Parts of a body, and bodies that never end, cannot be searched as a whole. */
function requireWhole({ status, headers }: PolicyResponse): void {
  if (status === 206) throw failure('the response is partial (206); remove the header range in on_http_request');
  const { type } = parseMediaType(firstValue(headers, 'content-type') ?? '');
  if (type === 'text/event-stream') throw failure('the response is an event stream; use sse-find-replace');
}

function failure(problem: string, cause?: unknown): PolicyFailure {
  return new PolicyFailure('ERR_NGROK_2300', problem, { cause });
}
