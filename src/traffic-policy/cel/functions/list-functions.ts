import {
  type CelFunc,
  type CelList,
  CelScalar,
  type CelValue,
  celFunc,
  celMethod,
  isCelList,
  isCelMap,
  isCelUint,
  listType,
} from '@bufbuild/cel';
import { checkListSize } from '../budget.ts';
import { currentContext } from '../evaluation.ts';
import { jsonOf } from '../values.ts';

const { BOOL, DYN, INT, STRING } = CelScalar;
const LIST = listType(DYN);

export const LIST_FUNCTIONS: readonly CelFunc[] = [
  celMethod('slice', LIST, [INT, INT], LIST, function (from, to) {
    if (from < 0n || to < from || to > BigInt(this.size)) throw new Error(`slice: ${from} to ${to} is out of range`);
    return [...this].slice(Number(from), Number(to));
  }),
  celMethod('flatten', LIST, [], LIST, function () {
    return flatten(this, 1);
  }),
  celMethod('flatten', LIST, [INT], LIST, function (depth) {
    if (depth < 0n) throw new Error('flatten: the depth is negative');
    return flatten(this, Math.min(Number(depth), 10));
  }),
  celMethod('sort', LIST, [], LIST, function () {
    return sortedBy([...this], [...this]);
  }),
  // The macro sortBy calls this; the second list has the keys of the elements of the first.
  celFunc('@sortBy', [LIST, LIST], LIST, (list, keys) => sortedBy([...list], [...keys])),
  // ngrok's documentation searches a header so, whose values are a list.
  celMethod('contains', LIST, [STRING], BOOL, function (part) {
    const { budget } = currentContext();
    return [...this].some((element) => {
      if (typeof element !== 'string') return false;
      budget.spend(element.length);
      return element.includes(part);
    });
  }),
  celMethod('distinct', LIST, [], LIST, function () {
    return distinct([...this]);
  }),
  celMethod('reverse', LIST, [], LIST, function () {
    return [...this].reverse();
  }),
  celFunc('lists.range', [INT], LIST, (size) => {
    checkListSize(Number(size));
    return Array.from({ length: Math.max(0, Number(size)) }, (_, at) => BigInt(at));
  }),
  // The library concatenates lazily, as nested lists, which take quadratic time to read.
  celFunc('_+_', [LIST, LIST], LIST, (left, right) => {
    checkListSize(left.size + right.size);
    return [...left, ...right];
  }),
  celFunc('@tick', [INT], BOOL, (cost) => {
    currentContext().budget.spend(Number(cost));
    return true;
  }),
  celFunc('@range', [DYN], DYN, (range) => range),
  celFunc('@has', [STRING], BOOL, (variable) => currentContext().variables[variable] !== undefined),
  celFunc('@hasKey', [DYN, DYN], BOOL, hasKey),
];

function hasKey(container: CelValue, key: CelValue): boolean {
  if (isCelMap(container)) {
    const isKey = typeof key === 'string' || typeof key === 'bigint' || typeof key === 'boolean' || isCelUint(key);
    return isKey && container.has(key);
  }
  if (isCelList(container) && typeof key === 'bigint') return key >= 0n && key < BigInt(container.size);
  throw new Error('has: neither a map nor a list');
}

function flatten(list: CelList, depth: number, flat: CelValue[] = []): CelValue[] {
  for (const element of list) {
    if (depth > 0 && isCelList(element)) flatten(element, depth - 1, flat);
    else flat.push(element);
    checkListSize(flat.length);
  }
  return flat;
}

/** @throws Error unless all keys are numbers, all strings or all booleans */
function sortedBy(list: readonly CelValue[], keys: readonly CelValue[]): CelValue[] {
  const kinds = new Set(keys.map((key) => (typeof key === 'bigint' ? 'number' : typeof key)));
  if (kinds.size > 1 || kinds.has('object')) throw new Error('sort: the elements cannot be compared with each other');
  const order = list.map((_, at) => at);
  order.sort((one, other) => compare(keys[one] ?? null, keys[other] ?? null));
  return order.map((at) => list[at] ?? null);
}

function compare(one: CelValue, other: CelValue): number {
  if (one === other || one === null || other === null) return 0;
  return one < other ? -1 : 1;
}

function distinct(list: readonly CelValue[]): CelValue[] {
  const seen = new Set<string>();
  return list.filter((element) => {
    // In CEL as in JSON, numbers are equal across types.
    const key = JSON.stringify(jsonOf(element));
    if (seen.has(key)) return false;
    seen.add(key);
    return true;
  });
}
