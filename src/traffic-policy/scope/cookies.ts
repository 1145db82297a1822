import { type CelInput, type CelMap, celList, celMap } from '@bufbuild/cel';
import { create } from '@bufbuild/protobuf';
import { DurationSchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { allValues } from './header-map.ts';

/** More than any browser sends. */
const MAX_COOKIES = 300;

export function requestCookies(headers: readonly string[]): CelMap {
  const pairs = allValues(headers, 'cookie')
    .join(';')
    .split(';', MAX_COOKIES)
    .map((pair) => splitPair(pair))
    .filter(({ name }) => name !== '');
  return byName(pairs.map(({ name, value }) => ({ name, value })));
}

/** @returns a map of names to lists of cookies with their attributes, longest path first */
export function responseCookies(headers: readonly string[]): CelMap {
  const cookies = allValues(headers, 'set-cookie').slice(0, MAX_COOKIES).map(parseSetCookie);
  cookies.sort((one, other) => other.path.length - one.path.length);
  return byName(cookies);
}

function byName(cookies: readonly ({ name: string } & Record<string, CelInput>)[]): CelMap {
  const lists = new Map<string, CelInput[]>();
  for (const cookie of cookies) {
    const known = lists.get(cookie.name) ?? [];
    known.push(celMap(new Map(Object.entries(cookie))));
    lists.set(cookie.name, known);
  }
  return celMap(new Map(Array.from(lists, ([name, list]) => [name, celList(list)])));
}

function splitPair(text: string): { name: string; value: string } {
  const equals = text.indexOf('=');
  if (equals === -1) return { name: '', value: trimSpace(text) };
  return {
    name: trimSpace(text, 0, equals),
    value: trimSpace(text, equals + 1).replace(/^"(.*)"$/, '$1'),
  };
}

/** RFC 6265, section 5.2. */
function parseSetCookie(header: string) {
  const [pair = '', ...rest] = header.split(';');
  const attributes = new Map<string, string>();
  const unparsed: string[] = [];
  for (const part of rest) {
    const [name = '', value = ''] = part.split(/=(.*)/s).map((text) => trimSpace(text));
    const lower = name.toLowerCase();
    if (KNOWN.has(lower)) attributes.set(lower, value);
    else if (name !== '') unparsed.push(trimSpace(part));
  }
  const expires = Date.parse(attributes.get('expires') ?? '');
  const maxAge = attributes.get('max-age') ?? '';
  return {
    ...splitPair(pair),
    domain: attributes.get('domain') ?? '',
    path: attributes.get('path') ?? '',
    expires: timestampFromMs(Number.isNaN(expires) ? 0 : expires),
    max_age: create(DurationSchema, { seconds: /^-?\d{1,12}$/.test(maxAge) ? BigInt(maxAge) : 0n }),
    http_only: attributes.has('httponly'),
    secure: attributes.has('secure'),
    same_site: attributes.get('samesite') ?? '',
    unparsed_attributes: celList(unparsed),
  };
}

const KNOWN: ReadonlySet<string> = new Set(['domain', 'expires', 'httponly', 'max-age', 'path', 'samesite', 'secure']);
