import { expect, it } from 'vitest';
import { attackReport, isWithstood, type Outcome } from './report.ts';

const clients = (failures: Record<string, number>, p99: number) => ({
  kinds: [{ kind: 'HTTP/2', besideAttackers: false, requests: 2000, failures, p50: 2.5, p99, max: 2000 }],
  lateP99: 12,
});

function outcome(changes: Partial<Outcome> = {}): Outcome {
  return {
    date: '2030-01-02',
    minutes: 30,
    heapMib: 256,
    descriptors: 256,
    quiet: clients({}, 9.3),
    underAttack: clients({}, 1000),
    results: [{ name: 'heartbeats', connections: 1200, refused: 3, ended: 900 }],
    sessionsLost: [],
    peaks: { rssMib: 200, descriptors: 250 },
    core: { used: 0.7, waited: 0.2 },
    ...changes,
  };
}

it('an attack is withstood only when nobody honest notices it', () => {
  expect(isWithstood(outcome())).toBe(true);
  expect(isWithstood(outcome({ underAttack: clients({ ECONNRESET: 1 }, 10) }))).toBe(false);
  expect(isWithstood(outcome({ underAttack: clients({}, 1001) }))).toBe(false);
  expect(isWithstood(outcome({ sessionsLost: ['silent'] }))).toBe(false);
  const { kinds, lateP99 } = clients({ ECONNRESET: 1 }, 10);
  const sharing = kinds.map((kind) => ({ ...kind, besideAttackers: true }));
  expect(isWithstood(outcome({ underAttack: { kinds: sharing, lateP99 } }))).toBe(true);
});

it('the report has a row for each kind of client and each attack', () => {
  const report = attackReport(
    outcome({ underAttack: clients({ ECONNRESET: 2, 'status 503': 1 }, 55), sessionsLost: ['cut'] }),
  );
  expect(report).toContain('for 30 minutes: not withstood. Honest sessions lost: 1 (cut).');
  expect(report).toContain(
    '| HTTP/2 | 2,000 | 3 | 2.5 ms | 55 ms | 2000 ms | 9.3 ms | 2 × ECONNRESET, 1 × status 503 |',
  );
  expect(report).toContain('| heartbeats | 1,200 | 3 | 900 |');
});
