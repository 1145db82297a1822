import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { Case, Client } from './client.ts';
import { describe, judge } from './outcome.ts';
import { compatibilityPage } from './page.ts';

const client: Client = {
  title: 'SDK 1.0',
  what: 'its tests',
  needs: 'nothing',
  missing: () => null,
  fetch() {},
  run: async () => [],
  expected: { oauth: 'needs the internet' },
};
const cases = (statuses: Record<string, Case['status']>): Case[] =>
  Object.entries(statuses).map(([name, status]) => ({ name, status, output: '' }));

it.each<[string, Record<string, Case['status']>, { passed: number; expected: string[]; failed: string[] }]>([
  ['an expected failure is none', { a: 'passed', oauth: 'failed' }, { passed: 1, expected: ['oauth'], failed: [] }],
  ['another one is', { a: 'failed', oauth: 'failed' }, { passed: 0, expected: ['oauth'], failed: ['a'] }],
  [
    'an expected failure that passes is one',
    { oauth: 'passed' },
    { passed: 1, expected: [], failed: ['oauth (expected to fail)'] },
  ],
  ['one that did not run is one', { a: 'passed' }, { passed: 1, expected: [], failed: ['oauth (expected to fail)'] }],
  [
    'a run that tries nothing is one',
    {},
    { passed: 0, expected: [], failed: ['nothing was tried', 'oauth (expected to fail)'] },
  ],
])('judging cases: %s', (_, statuses, { passed, expected, failed }) => {
  const outcome = judge(client, cases(statuses), '2026-01-31');
  expect(outcome).toMatchObject({ client: 'SDK 1.0', date: '2026-01-31', passed, failed });
  expect(outcome.expected.map(({ name }) => name)).toEqual(expected);
  expect(describe(outcome)).toContain(`${passed} passed, ${failed.length} failed, ${expected.length} expected to fail`);
});

it('docs/compatibility.md is what the last runs say', () => {
  const lastRuns = JSON.parse(readFileSync('test/interop/last-runs.json', 'utf8'));
  expect(readFileSync('docs/compatibility.md', 'utf8')).toBe(compatibilityPage(lastRuns));
});
