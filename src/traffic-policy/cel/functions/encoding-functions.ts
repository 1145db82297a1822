import {
  type CelFunc,
  type CelInput,
  type CelMap,
  CelScalar,
  type CelValue,
  celFunc,
  celMap,
  celMethod,
  isCelList,
  mapType,
} from '@bufbuild/cel';
import { messageOf } from '../../../lib/errors.ts';
import { parseUrl, queryParameters } from '../../scope/url-parts.ts';
import { celOf, jsonOf, textOf } from '../values.ts';

const { BOOL, BYTES, DYN, STRING } = CelScalar;
const MAP = mapType(STRING, DYN);

export const ENCODING_FUNCTIONS: readonly CelFunc[] = [
  celFunc('base64.encode', [BYTES], STRING, encodeBase64),
  celFunc('base64.encode', [STRING], STRING, encodeBase64),
  celFunc('base64.decode', [STRING], BYTES, decodeBase64),
  celMethod('encodeBase64', STRING, [], STRING, function () {
    return encodeBase64(this);
  }),
  celMethod('encodeBase64', BYTES, [], STRING, function () {
    return encodeBase64(this);
  }),
  celMethod('decodeBase64', STRING, [], STRING, function () {
    return decodeUtf8(decodeBase64(this));
  }),
  celFunc(
    'basic_auth.encode',
    [STRING, STRING],
    STRING,
    (user, password) => `Basic ${encodeBase64(`${user}:${password}`)}`,
  ),

  celFunc('json.encode', [DYN], STRING, encodeJson),
  celMethod('encodeJson', DYN, [], STRING, function () {
    return encodeJson(this);
  }),
  ...oneText('json.decode', 'decodeJson', decodeJson),
  ...test('isJson', (text) => {
    decodeJson(text);
    return true;
  }),

  celFunc('queryString.encode', [MAP], STRING, encodeQuery),
  celMethod('encodeQueryString', MAP, [], STRING, function () {
    return encodeQuery(this);
  }),
  ...oneText('queryString.decode', 'decodeQueryString', (text) => queryParameters(text.replace(/^\?/, ''))),
  ...test('isQueryString', (text) => /^\??[^\s#=&]+=[^\s#&]*(?:&[^\s#=&]+=[^\s#&]*)*$/.test(text)),

  ...oneText('url.parse', 'parseUrl', (text) => {
    const url = parseUrl(text);
    if (url === null) throw new Error(`${JSON.stringify(text)} is not a URL`);
    return celMap(new Map(Object.entries({ ...url, query_params: queryParameters(url.query) })));
  }),
  ...oneText('url.escape', 'escapeUrl', encodeURIComponent),
  ...oneText('url.unescape', 'unescapeUrl', (text) => decodeURIComponent(text.replaceAll('+', ' '))),
  ...test('isURL', (text) => parseUrl(text) !== null),
];

/** A function of one string, both as `name(s)` and as `s.method()`. */
function oneText(name: string, method: string, run: (text: string) => CelInput): CelFunc[] {
  return [
    celFunc(name, [STRING], DYN, run),
    celMethod(method, STRING, [], DYN, function () {
      return run(this);
    }),
  ];
}

function test(method: string, run: (text: string) => boolean): CelFunc[] {
  return [
    celMethod(method, STRING, [], BOOL, function () {
      try {
        return run(this);
      } catch {
        return false; // an error means that the string is invalid
      }
    }),
  ];
}

function encodeBase64(data: string | Uint8Array): string {
  return Buffer.from(data as string).toString('base64');
}

/** @throws Error for invalid base64; Node would skip invalid characters */
function decodeBase64(text: string): Uint8Array {
  const bare = text.replace(/=+$/, '').replaceAll('-', '+').replaceAll('_', '/');
  if (!/^[A-Za-z0-9+/]*$/.test(bare) || bare.length % 4 === 1) throw new Error('not base64');
  return new Uint8Array(Buffer.from(bare, 'base64'));
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

function decodeUtf8(bytes: Uint8Array): string {
  return utf8.decode(bytes);
}

function encodeJson(value: CelValue): string {
  return JSON.stringify(jsonOf(value));
}

function decodeJson(text: string): CelInput {
  try {
    return celOf(JSON.parse(text));
  } catch (error) {
    // Deep nesting overflows the stack of celOf: the policy gets the same error as for invalid JSON.
    throw new Error(`not JSON: ${messageOf(error)}`);
  }
}

function encodeQuery(map: CelMap): string {
  const query = new URLSearchParams();
  for (const [key, value] of map) {
    const values = isCelList(value) ? [...value] : [value];
    for (const each of values) query.append(textOf(key), textOf(each));
  }
  return query.toString();
}
