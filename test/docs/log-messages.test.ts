import { expect, it } from 'vitest';
import { FIELDS } from '../../scripts/docs/log-fields.ts';
import { logCalls } from '../../scripts/docs/log-messages.ts';
import { REMEDIES } from '../../scripts/docs/log-remedies.ts';

const calls = logCalls('src');

it('every log call has a constant message and an object literal of fields', () => {
  expect(calls.length).toBeGreaterThan(50);
  expect(calls.filter(({ problems }) => problems.length > 0)).toEqual([]);
});

it('every log field is in snake_case and documented', () => {
  const fields = [...new Set(calls.flatMap((call) => call.fields))].sort();
  expect(fields.filter((name) => !/^[a-z]+(_[a-z]+)*$/.test(name))).toEqual([]);
  expect(fields.filter((name) => !(name in FIELDS))).toEqual([]);
});

it('every documented remedy belongs to a log message', () => {
  const messages = new Set(calls.flatMap((call) => call.messages));
  expect(Object.keys(REMEDIES).filter((message) => !messages.has(message))).toEqual([]);
});
