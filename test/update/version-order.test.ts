import { expect, it } from 'vitest';
import { compareVersions, VERSION_PATTERN } from '../../src/update/version-order.ts';

it('versions have the order of semver', () => {
  const ordered = [
    '0.9.9',
    '1.0.0-alpha',
    '1.0.0-beta.2',
    '1.0.0-beta.10',
    '1.0.0',
    '1.0.1',
    '1.2.0',
    '1.10.0',
    '10.0.0',
  ];
  for (const [at, one] of ordered.entries()) {
    expect(one).toMatch(VERSION_PATTERN);
    for (const [place, other] of ordered.entries()) {
      expect(Math.sign(compareVersions(one, other)), `${one} and ${other}`).toBe(Math.sign(at - place));
    }
  }
});
