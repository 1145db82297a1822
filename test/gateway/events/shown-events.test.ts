import { expect, it } from 'vitest';
import { eventJson } from '../../../src/gateway/events/shown-events.ts';
import { auditRow } from './audit-row.ts';

it('writes no half of a surrogate pair, at which strict readers fail', () => {
  const row = auditRow(1, 'a\ud83d, \ude00b, 😀, \\ud83d');
  const json = eventJson({ ...row, before: { tags: ['\ud83d'], 'name\ud83d': 1 } });
  expect(json).not.toMatch(/(?<!\\)\\ud/);
  expect(JSON.parse(json)).toMatchObject({
    object: { description: 'a\ufffd, \ufffdb, 😀, \\ud83d' },
    before: { tags: ['\ufffd'], 'name\ufffd': 1 },
  });
});
