import { type CelEnv, type CelFunc, type CelResult, type CelValue, isCelList, isCelMap } from '@bufbuild/cel';
import { type Budget, checkTextLength } from './budget.ts';
import { currentContext } from './evaluation.ts';

export interface Price {
  readonly call: number;
  /** Of each character, byte, element or member that the function takes or returns. */
  readonly part: number;
  /** Which arguments it reads with all that they contain. */
  readonly deep: 'none' | 'lists' | 'all';
}

type FuncGroup = NonNullable<ReturnType<CelEnv['funcs']['find']>>;

/**
 * Makes every function charge the budget for what it takes and returns.
 *
 * @throws Error when a function has no price
 */
export function metered(env: CelEnv, prices: Readonly<Record<string, Price>>): CelEnv {
  const groups = new Map<string, FuncGroup>();
  for (const { name } of env.funcs) {
    const price = Object.hasOwn(prices, name) ? prices[name] : undefined;
    const group = env.funcs.find(name);
    if (price === undefined || group === undefined) throw new Error(`the function ${name} has no price`);
    groups.set(name, new MeteredGroup(group, price));
  }
  const funcs: CelEnv['funcs'] = Object.create(env.funcs, { find: { value: (name: string) => groups.get(name) } });
  return Object.create(env, { funcs: { value: funcs } });
}

/** All functions of one name; replaces the library's group, which also unpacks messages that no policy has. */
class MeteredGroup implements FuncGroup {
  readonly name: string;
  readonly #overloads: CelFunc[];
  readonly #price: Price;

  constructor(group: FuncGroup, price: Price) {
    this.name = group.name;
    this.#overloads = [...group];
    this.#price = price;
  }

  [Symbol.iterator](): IterableIterator<CelFunc> {
    return this.#overloads[Symbol.iterator]();
  }

  /** @throws {PolicyFailure} when nothing is left; the library turns what functions throw into values instead */
  call(id: number, target: CelValue | undefined, args: CelValue[]): CelResult | undefined {
    const { budget } = currentContext();
    const { call, part, deep } = this.#price;
    let parts = target === undefined ? 0 : sizeOf(target);
    for (let at = 0; at < args.length; at++) parts += sizeOf(args[at]);
    budget.spend(call + part * parts);
    if (deep !== 'none') {
      if (deep === 'all' || !isCelMap(target)) spendOnElements(target, part, budget);
      for (const value of args) if (deep === 'all' || !isCelMap(value)) spendOnElements(value, part, budget);
    }
    const result = this.#call(id, target, args);
    if (typeof result === 'string' || typeof result === 'object') {
      const size = sizeOf(result);
      if (typeof result === 'string' || result instanceof Uint8Array) checkTextLength(size);
      budget.spend(part * size);
    }
    return result;
  }

  #call(id: number, target: CelValue | undefined, args: CelValue[]): CelResult | undefined {
    const overloads = this.#overloads;
    for (let at = 0; at < overloads.length; at++) {
      const overload = overloads[at] as CelFunc;
      const result = overload.call(id, target, args);
      if (result === undefined) continue;
      // At most one overload fits. The one that did is tried first next time: comparing types takes longer than most calls.
      if (at > 0) {
        overloads[at] = overloads[0] as CelFunc;
        overloads[0] = overload;
      }
      return result;
    }
    return undefined;
  }
}

export function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 1;
  if (isCelList(value) || isCelMap(value)) return value.size;
  return value instanceof Uint8Array ? value.length : 1;
}

/** Charges while it counts: a small value can contain another one very often. */
function spendOnElements(value: unknown, part: number, budget: Budget): void {
  if (typeof value !== 'object' || value === null) return;
  if (isCelList(value)) for (let at = 0; at < value.size; at++) spendOnValue(value.get(at), part, budget);
  else if (isCelMap(value)) {
    for (const [key, member] of value) {
      budget.spend(part * sizeOf(key));
      spendOnValue(member, part, budget);
    }
  }
}

function spendOnValue(value: unknown, part: number, budget: Budget): void {
  budget.spend(part * sizeOf(value));
  spendOnElements(value, part, budget);
}

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
    ...['getDayOfMonth', 'getDayOfWeek', 'getDayOfYear', 'hasReqHeader', 'getReqHeader'],
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
  // It asks the database.
  'secrets.get': { call: 2000, part: 1, deep: 'none' },
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
