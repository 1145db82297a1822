import type { PolicyRequest, PolicyScope } from '../policy-subjects.ts';
import { firstValue } from '../scope/header-map.ts';
import { parseMediaType } from '../scope/media-type.ts';
import type { Template } from '../templates.ts';

const MAX_BODY = 64 * 1024;
const MAX_TOKEN = 16 * 1024;

export interface TokenPlace {
  readonly type: string;
  readonly method: 'header' | 'body';
  readonly name: Template;
  readonly prefix: Template;
}

/** Raised when a request has no token or an invalid one. */
export class TokenRefused extends Error {
  /**
   * @param code `ERR_NGROK_…`
   * @param message for the client
   */
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = 'TokenRefused';
  }
}

/**
 * @returns the token, and the name of its header or member
 * @throws {TokenRefused} when the request has no token
 */
export async function findToken(
  request: PolicyRequest,
  place: TokenPlace,
  scope: PolicyScope,
): Promise<{ token: string; property: string }> {
  const property = place.name.text(scope);
  const value = place.method === 'header' ? fromHeader(request, property) : await fromBody(request, property);
  const prefix = place.prefix.text(scope);
  if (!value.toLowerCase().startsWith(prefix.toLowerCase())) {
    throw new TokenRefused('ERR_NGROK_3413', 'The token does not have the required prefix.');
  }
  const token = value.slice(prefix.length).trim();
  if (token === '') throw new TokenRefused('ERR_NGROK_3406', 'This endpoint requires a token.');
  if (token.length > MAX_TOKEN || token.split('.').length !== 3) {
    throw new TokenRefused('ERR_NGROK_3416', 'The token is malformed.');
  }
  return { token, property };
}

function fromHeader(request: PolicyRequest, name: string): string {
  const value = firstValue(request.headers, name.toLowerCase());
  if (value === undefined) throw new TokenRefused('ERR_NGROK_3408', 'This endpoint requires a token.');
  return value;
}

async function fromBody(request: PolicyRequest, name: string): Promise<string> {
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
  const value = type === 'application/json' ? memberOf(body, name) : formValue(body, name);
  if (value === null) throw new TokenRefused('ERR_NGROK_3412', 'The body has no token.');
  return value;
}

function memberOf(body: Buffer, name: string): string | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString());
  } catch {
    return null; // not JSON: the body holds no token
  }
  if (typeof parsed !== 'object' || parsed === null) return null;
  const wanted = name.toLowerCase();
  const found = Object.entries(parsed).find(([key]) => key.toLowerCase() === wanted)?.[1];
  return typeof found === 'string' ? found : null;
}

function formValue(body: Buffer, name: string): string | null {
  const wanted = name.toLowerCase();
  for (const [key, value] of new URLSearchParams(body.toString())) if (key.toLowerCase() === wanted) return value;
  return null;
}
