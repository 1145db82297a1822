import { describe, expect, it } from 'vitest';
import type { Release } from '../../src/update/release.ts';
import { newestKeys, requireNewest, whySettled, withRelease } from '../../src/update/release-choice.ts';
import type { History } from '../../src/update/update-records.ts';

const NEW: History = { version: 1, seen: {}, rejected: [], doubtful: {}, last: null, keys: null };
const GIVEN = { number: 1, keys: ['one', 'two'] };
const NOW = Date.parse('2026-06-15T00:00:00Z');

const release = (change: Partial<Release> = {}): Release => ({
  ...{ version: '1.1.0', channel: 'stable', security: null, files: [], keys: GIVEN },
  ...{ released: '2026-06-01T00:00:00Z', expires: '2026-07-01T00:00:00Z', ...change },
});
const choice = (change: object) => ({ installed: '1.0.0', release: release(), to: null, automatic: null, ...change });

describe('the newest release of a channel', () => {
  const having = (seen: Release) => withRelease(NEW, seen, GIVEN);

  it('is refused when it is older than one that was seen before', () => {
    const history = having(release({ version: '1.2.0' }));
    expect(() => requireNewest(release(), 'stable', history, NOW)).toThrow(
      /has version 1\.1\.0.*1\.2\.0 .* was seen before/,
    );
    const signedAgain = having(release({ released: '2026-06-02T00:00:00Z' }));
    expect(() => requireNewest(release(), 'stable', signedAgain, NOW)).toThrow(/was seen before/);
    expect(() => requireNewest(release({ version: '1.2.0' }), 'stable', history, NOW)).not.toThrow();
  });

  it('is refused once its manifest has expired, also by a clock that is years behind', () => {
    const expired = release({ expires: '2026-06-10T00:00:00Z' });
    expect(() => requireNewest(expired, 'stable', NEW, NOW)).toThrow(/expired at .* check this device's clock/);
    const history = having(release({ released: '2026-06-11T00:00:00Z', version: '1.1.0' }));
    const replayed = release({ version: '1.1.1', expires: '2026-06-10T00:00:00Z' });
    expect(() => requireNewest(replayed, 'stable', history, 0)).toThrow(/expired/);
  });

  it('is refused when it is one of another channel', () => {
    expect(() => requireNewest(release({ channel: 'beta' }), 'stable', NEW, NOW)).toThrow(/of the channel beta/);
  });
});

describe('keys', () => {
  it('that a release brings replace those before, and an older release never brings them back', () => {
    const rotated = withRelease(NEW, release({ keys: { number: 2, keys: ['two', 'three'] } }), GIVEN);
    expect(newestKeys(GIVEN, rotated)).toEqual({ number: 2, keys: ['two', 'three'] });
    const older = withRelease(rotated, release({ keys: GIVEN }), newestKeys(GIVEN, rotated));
    expect(newestKeys(GIVEN, older).number).toBe(2);
  });

  it('of the program replace those of a release once they are newer', () => {
    const rotated = withRelease(NEW, release({ keys: { number: 2, keys: ['two'] } }), GIVEN);
    expect(newestKeys({ number: 3, keys: ['three'] }, rotated).keys).toEqual(['three']);
  });

  it('an empty set locks nobody out', () => {
    expect(withRelease(NEW, release({ keys: { number: 9, keys: [] } }), GIVEN).keys).toBe(null);
  });
});

describe('a release', () => {
  it('is installed when it is newer, or was asked for', () => {
    expect(whySettled(choice({}), NEW)).toBe(null);
    expect(whySettled(choice({ installed: '1.2.0' }), NEW)).toMatch(/newer than 1\.1\.0/);
    expect(whySettled(choice({ installed: '1.2.0', to: '1.1.0' }), NEW)).toBe(null);
    expect(whySettled(choice({ installed: '1.1.0', to: '1.1.0' }), NEW)).toMatch(/is installed/);
  });

  it('that was given up is not tried again, unless it was asked for', () => {
    const history = { ...NEW, rejected: [{ version: '1.1.0', reason: 'it was not online' }] };
    expect(whySettled(choice({ automatic: 'stable' }), history)).toMatch(
      /given up .* not online; to try it again: .*--to 1\.1\.0/,
    );
    expect(whySettled(choice({ to: '1.1.0' }), history)).toBe(null);
  });

  it('is installed by AGENT_UPDATE=security only when the installed version has a vulnerability that is fixed', () => {
    const fixing = (security: string | null) => choice({ automatic: 'security', release: release({ security }) });
    expect(whySettled(fixing('1.0.1'), NEW)).toBe(null);
    expect(whySettled(fixing('1.0.0'), NEW)).toMatch(/no security fix/);
    expect(whySettled(fixing(null), NEW)).toMatch(/no security fix/);
  });
});
