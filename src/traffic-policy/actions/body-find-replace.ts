import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { Reservation } from '../../lib/memory-budget.ts';
import type { ActionContext } from '../action-context.ts';
import { prepareReplacement, Replacement, replacementsOf } from '../action-parts/find-replace.ts';
import { type Coding, codingOf, decodedBody, forgetBytes } from '../action-parts/message-body.ts';
import { parseConfig } from '../action-problems.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type { PolicyRequest, PolicyResponse } from '../policy-subjects.ts';
import { firstValue, parseMediaType } from '../scope/header-map.ts';
import type { ProcessorTime } from '../state/processor-time.ts';
import { type PreparedAction, policyError } from '../steps.ts';

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
      const changed = body.length === 0 ? UNCHANGED : await replace(body, headers, request);
      context.record(request, 'request_body_find_replace', { replacements: changed.matches });
      if (changed.body === null) return undefined;
      forgetBytes(headers);
      if (isLong) headers.push('content-length', String(changed.body.length));
      if (!request.replaceBody(changed.body)) return TOO_LONG;
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
    const changed = await replace(body, isEncodedLater ? [] : response.headers, request);
    context.record(request, 'response_body_find_replace', { replacements: changed.matches });
    if (changed.body === null) return;
    holdBody(changed.body, request, response);
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

/** Sends another body to the client, which counts until the response ends. @throws {PolicyFailure} when there is no room */
function holdBody(body: Buffer, request: PolicyRequest, response: PolicyResponse): void {
  const held = response.bodyHeld ?? new Reservation(request.bodyMemory ?? null);
  held.release();
  if (!held.tryReserve(body.length)) throw failure('the body takes too much memory');
  if (response.bodyHeld === undefined) request.onEnd?.(() => held.release());
  response.bodyHeld = held;
  response.body = body;
}

type Replace = (body: Buffer, headers: readonly string[], request: PolicyRequest) => Promise<Changed>;

function prepare(config: unknown, context: ActionContext): Replace {
  const { replacements } = parseConfig(BodyFindReplaceConfig, config);
  const prepared = replacements.map((item, at) => prepareReplacement(item, `config.replacements[${at}]`, context));
  return async (bytes, headers, request) => {
    const isCoded = knownCoding(headers) !== null;
    const scope = context.scopeOf(request);
    const wanted = prepared.map((each) => each(scope));
    // What was parsed of the request must not wait with it.
    scope.changed();
    const { text, encoding, matches } = await context.ports.replaceIn(
      { bytes, decode: isCoded ? (time) => contentFor(bytes, headers, time) : null },
      wanted,
      request,
    );
    return { body: matches.length === 0 ? null : Buffer.from(text, encoding), matches };
  };
}

/** Few bodies are decoded at a time: what they take is not reserved. */
async function contentFor(bytes: Buffer, headers: readonly string[], time: ProcessorTime): Promise<Buffer> {
  try {
    return await decodedBody(bytes, headers, MAX_BODY, new Reservation(null), time);
  } catch (error) {
    throw failure(messageOf(error), error);
  }
}

function knownCoding(headers: readonly string[]): Coding | null {
  try {
    return codingOf(headers);
  } catch (error) {
    throw failure(messageOf(error), error);
  }
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
