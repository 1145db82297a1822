import type { Price } from './metered-environment.ts';

/** Reads values without looking into their elements: at about the speed of one unit for each part. */
const BY_SIZE: Price = { call: 5, part: 1, deep: 'none' };
const TWICE: Price = { call: 20, part: 2, deep: 'none' };
const DEEP: Price = { call: 5, part: 1, deep: 'all' };

/**
 * The cost of every function. What a function takes and returns is charged in any case; a function without an entry here
 * keeps the gateway from starting. Functions whose cost depends on more than sizes, like `matches`, charge the rest
 * themselves.
 */
export const PRICES: Readonly<Record<string, Price>> = {
  ...all(BY_SIZE, [
    ...['_-_', '_*_', '_/_', '_%_', '-_', '!_', '_<_', '_<=_', '_>_', '_>=_', '_+_', 'bool', 'bytes', 'string'],
    ...['double', 'type', 'dyn', 'size', 'contains', 'endsWith', 'startsWith', 'matches', 'charAt', 'indexOf'],
    ...['lastIndexOf', 'lowerAscii', 'upperAscii', 'lower', 'upper', 'replace', 'split', 'substring', 'trim'],
    ...['@tick', '@range', '@has', '@hasKey', 'rand.double', 'rand.int'],
    ...['getSeconds', 'getMinutes', 'getHours', 'getMilliseconds', 'getFullYear', 'getMonth', 'getDate'],
    ...['getDayOfMonth', 'getDayOfWeek', 'getDayOfYear', 'secrets.get', 'hasReqHeader', 'getReqHeader'],
    ...['hasQueryParam', 'getQueryParam', 'hasReqCookie', 'getReqCookie', 'hasResHeader', 'getResHeader'],
    ...['hasResCookie', 'getResCookie', 'base64.encode', 'base64.decode', 'encodeBase64', 'decodeBase64'],
    ...['basic_auth.encode'],
  ]),
  ...all(TWICE, [
    ...['int', 'uint', 'timestamp', 'duration', 'strings.quote', 'json.decode', 'decodeJson', 'isJson'],
    ...['queryString.decode', 'decodeQueryString', 'isQueryString', 'url.escape', 'escapeUrl', 'url.unescape'],
    ...['unescapeUrl', 'isPrivateIp', 'inCidrRange'],
  ]),
  '@in': { call: 5, part: 1, deep: 'lists' },
  ...all(DEEP, ['_==_', '_!=_', 'join', 'format', 'queryString.encode', 'encodeQueryString']),
  ...all({ call: 20, part: 4, deep: 'none' }, ['reverse', 'slice', 'lists.range']),
  flatten: { call: 20, part: 4, deep: 'lists' },
  sort: { call: 20, part: 10, deep: 'none' },
  ...all({ call: 20, part: 10, deep: 'all' }, ['@sortBy', 'distinct', 'json.encode', 'encodeJson', 'inCidrRanges']),
  ...all({ call: 100, part: 2, deep: 'none' }, ['url.parse', 'parseUrl', 'isURL']),
  // The 64-bit hashes use BigInt, about 100 ns a byte.
  ...all({ call: 50, part: 4, deep: 'none' }, ['crc32', 'crc64', 'md5', 'sha1', 'sha256', 'sha512', 'xxhash64']),
  ...all({ call: 50, part: 4, deep: 'none' }, ['hash.crc32', 'hash.crc64', 'hash.md5', 'hash.sha1', 'hash.sha256']),
  ...all({ call: 50, part: 4, deep: 'none' }, ['hash.sha512', 'hash.xxhash64']),
};

function all(price: Price, names: readonly string[]): Record<string, Price> {
  return Object.fromEntries(names.map((name) => [name, price]));
}
