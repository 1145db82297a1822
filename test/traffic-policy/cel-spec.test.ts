import { readFileSync } from 'node:fs';
import {
  type CelInput,
  type CelValue,
  celList,
  celMap,
  celType,
  celUint,
  isCelList,
  isCelMap,
  isCelType,
  isCelUint,
} from '@bufbuild/cel';
import { expect, it } from 'vitest';
import { Budget } from '../../src/traffic-policy/cel/budget.ts';
import { compileExpression } from '../../src/traffic-policy/cel/expression.ts';

/** Kind and value, as `scripts/cel-spec-cases.js` converts them from google/cel-spec (Apache-2.0). */
type Value = [kind: string, value?: unknown];
type Case = [name: string, expression: string, result: Value, variables?: Record<string, Value>];

const CASES: Case[] = JSON.parse(readFileSync(new URL('cel-spec/cases.json', import.meta.url), 'utf8'));

function inputOf([kind, value]: Value): CelInput {
  switch (kind) {
    case 'int':
      return BigInt(value as string);
    case 'uint':
      return celUint(BigInt(value as string));
    case 'double':
      return Number(value);
    case 'bytes':
      return new Uint8Array(Buffer.from(value as string, 'base64'));
    case 'list':
      return celList((value as Value[]).map(inputOf));
    case 'map':
      return celMap(
        new Map((value as [Value, Value][]).map(([key, member]) => [inputOf(key) as string, inputOf(member)])),
      );
    case 'null':
      return null;
    default:
      return value as CelInput;
  }
}

/** A value as in the cases; the members of maps are sorted. */
function described(value: CelValue): Value {
  if (value === null) return ['null'];
  if (isCelUint(value)) return ['uint', String(value.value)];
  if (value instanceof Uint8Array) return ['bytes', Buffer.from(value).toString('base64')];
  if (isCelList(value)) return ['list', Array.from(value, described)];
  if (isCelMap(value))
    return ['map', sorted(Array.from(value, ([key, member]) => [described(key), described(member)]))];
  if (isCelType(value)) return ['type', String(value.name)];
  const kind = String(celType(value).name);
  return [kind, typeof value === 'string' || typeof value === 'boolean' ? value : String(value)];
}

const sorted = (members: unknown[]) =>
  members.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));

function evaluated(expression: string, variables: Record<string, Value>): Value {
  const names = new Set(Object.keys(variables));
  const roots = new Set([...names].map((name) => name.split('.', 1)[0] ?? ''));
  const inputs = Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, inputOf(value)]));
  try {
    const compiled = compileExpression(expression, {
      ...{ names, roots, open: names, members: new Set() },
      kinds: new Map(),
    });
    return described(
      compiled.evaluate({ variables: inputs, budget: new Budget(), random: () => 0, secret: () => null }),
    );
  } catch {
    return ['error'];
  }
}

/** Cases that policies answer differently on purpose, by what their names or expressions contain. */
const DIFFERENCES: readonly [why: string, cases: RegExp, number: number][] = [
  ['policies have no protocol buffers', /TestAllTypes|google\.protobuf/, 83],
  [
    'unknown functions and variables are rejected when a policy is bound, whatever ignores their errors',
    /\|\| true$/,
    19,
  ],
  ['the syntax for quoted fields is not supported', /`/, 6],
  ['keys that are equal numbers of different types may stand in one map', /0: 1, 0u: 2/, 1],
  ['split drops what is beyond the limit, as in ngrok', /split\(' ', 1\)/, 1],
  ['%f and %e format doubles only', /"%[ef]"\.format\(\[\du?\]\)/, 4],
];

it('expressions pass the conformance tests of CEL, apart from listed differences', () => {
  const differing = CASES.filter(([, expression, result, variables = {}]) => {
    const expected = result[0] === 'map' ? ['map', sorted(result[1] as unknown[])] : result;
    return JSON.stringify(evaluated(expression, variables)) !== JSON.stringify(expected);
  });
  const reasons = differing.map(([name, expression]) => {
    const known = DIFFERENCES.find(([, cases]) => cases.test(expression));
    return known?.[0] ?? `${name}: ${expression}`;
  });
  const counted = DIFFERENCES.map(([why]) => [why, reasons.filter((reason) => reason === why).length]);
  expect(reasons.filter((reason) => !DIFFERENCES.some(([why]) => why === reason))).toEqual([]);
  expect(counted).toEqual(DIFFERENCES.map(([why, , number]) => [why, number]));
});
