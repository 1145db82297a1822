import { trimSpace } from '../../lib/http/header-fields.ts';
import type { PolicyRequest, PolicyScope } from '../policy-subjects.ts';
import { allValues, firstValue, parseMediaType } from '../scope/header-map.ts';
import type { ProcessorTime } from '../state/processor-time.ts';
import type { Template } from '../templates.ts';

const MAX_BODY = 64 * 1024;
const MAX_TOKEN = 16 * 1024;

export interface TokenPlace {
  readonly type: string;
  readonly method: 'header' | 'body';
  readonly name: Template;
  readonly prefix: Template;
}

export class TokenRefused extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = 'TokenRefused';
  }
}

/** @throws {TokenRefused} when the request has no token */
export async function findToken(
  request: PolicyRequest,
  place: TokenPlace,
  scope: PolicyScope,
  time: ProcessorTime,
): Promise<{ token: string; property: string }> {
  const property = place.name.text(scope);
  const value = place.method === 'header' ? fromHeader(request, property) : await fromBody(request, property, time);
  const prefix = place.prefix.text(scope);
  if (!value.toLowerCase().startsWith(prefix.toLowerCase())) {
    throw new TokenRefused('ERR_NGROK_3413', 'The token does not have the required prefix.');
  }
  const token = trimSpace(value, prefix.length);
  if (token === '') throw new TokenRefused('ERR_NGROK_3406', 'This endpoint requires a token.');
  if (token.length > MAX_TOKEN || token.split('.').length !== 3) {
    throw new TokenRefused('ERR_NGROK_3416', 'The token is malformed.');
  }
  return { token, property };
}

function fromHeader(request: PolicyRequest, name: string): string {
  const values = allValues(request.headers, name.toLowerCase());
  return only(values, new TokenRefused('ERR_NGROK_3408', 'This endpoint requires a token.'));
}

/** With several values, the upstream might read another one than the one that was checked. */
function only(values: readonly string[], missing: TokenRefused): string {
  const [value, ...more] = values;
  if (value === undefined) throw missing;
  if (more.length > 0) throw new TokenRefused('ERR_NGROK_3416', 'The request has more than one token.');
  return value;
}

async function fromBody(request: PolicyRequest, name: string, time: ProcessorTime): Promise<string> {
  if (!['POST', 'PUT', 'PATCH'].includes(request.method)) {
    throw new TokenRefused(
      'ERR_NGROK_3415',
      'This endpoint requires a token in the body, which this method does not support.',
    );
  }
  const { type } = parseMediaType(firstValue(request.headers, 'content-type') ?? '');
  if (type !== 'application/json' && type !== 'application/x-www-form-urlencoded') {
    throw new TokenRefused('ERR_NGROK_3414', 'This endpoint requires a token in a JSON or form body.');
  }
  const body = await request.readBody(MAX_BODY);
  if (body === null || body.length === 0)
    throw new TokenRefused('ERR_NGROK_3411', 'This endpoint requires a token in the body.');
  const valuesOf = type === 'application/json' ? jsonMembers : formValues;
  const values = time.run(() => valuesOf(body.toString(), name.toLowerCase()));
  return only(values, new TokenRefused('ERR_NGROK_3412', 'The body has no token.'));
}

/** The value of a member in any case, once for each member of that name. */
function jsonMembers(text: string, name: string): string[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return []; // not JSON: the body holds no token
  }
  if (typeof parsed !== 'object' || parsed === null) return [];
  const isWanted = (key: string) => key.toLowerCase() === name;
  const value = Object.entries(parsed).find(([key]) => isWanted(key))?.[1];
  if (typeof value !== 'string') return [];
  return memberNames(text).flatMap((key) => (isWanted(key) ? [value] : []));
}

/** The names of an object's members, with repeated ones, of which JSON.parse() keeps the last. */
function memberNames(json: string): string[] {
  const names: string[] = [];
  let depth = 0;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}[\]]/g)) {
    if (token === '{' || token === '[') depth++;
    else if (token === '}' || token === ']') depth--;
    else if (depth === 1 && token.endsWith(':')) names.push(JSON.parse(token.slice(0, -1)));
  }
  return names;
}

function formValues(text: string, name: string): string[] {
  return [...new URLSearchParams(text)].flatMap(([key, value]) => (key.toLowerCase() === name ? [value] : []));
}
