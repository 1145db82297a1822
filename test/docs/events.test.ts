import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { CHANGE_TYPES } from '../../src/gateway/store/audit-log.ts';
import { ACTIVITY_TYPES } from '../../src/gateway/store/events.ts';

it('docs/events.md names all types of events, and no others', () => {
  const [, section = ''] = /## Types\n([\s\S]*)$/.exec(readFileSync('docs/events.md', 'utf8')) ?? [];
  const named = [...section.matchAll(/^\| ((?:`[\w.]+`(?:, )?)+) \|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([\w.]+)`/g)].map(([, name = '']) => name),
  );
  const changes = new Set(CHANGE_TYPES.map((type) => type.replace(/_(?:created|updated|deleted)\.v0$/, '')));
  expect(named.sort()).toEqual([...changes, ...ACTIVITY_TYPES].sort());
});
