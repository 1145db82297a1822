import { expect, it } from 'vitest';
import { attackReport, faultsOf, type Outcome } from './report.ts';

const clients = (failures: Record<string, number>, p99: number) => ({
  kinds: [{ kind: 'HTTP/2', besideAttackers: false, requests: 2000, failures, p50: 2.5, p99, max: 2000 }],
  lateP99: 12,
});

function outcome(changes: Partial<Outcome> = {}): Outcome {
  return {
    date: '2030-01-02',
    minutes: 30,
    only: '',
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

/** One kind of clients, with the half and 99 % of its times in milliseconds. */
const taking = (p50: number, p99: number) => {
  const { kinds, lateP99 } = clients({}, p99);
  return { kinds: kinds.map((kind) => ({ ...kind, p50 })), lateP99 };
};
const one = { only: 'heartbeats', quiet: taking(6, 40), underAttack: taking(12, 100) };
const besideAttackers = {
  ...clients({}, 0),
  kinds: clients({ ECONNRESET: 1 }, 5000).kinds.map((kind) => ({ ...kind, besideAttackers: true })),
};

it.each<[string, Partial<Outcome>, readonly string[]]>([
  ['all attacks', {}, []],
  ['a failure', { underAttack: clients({ ECONNRESET: 1 }, 10) }, ['HTTP/2: 1 failed']],
  ['slow answers', { underAttack: clients({}, 1001) }, ['HTTP/2: p99 of 1001 ms is above 1000 ms']],
  ['a lost session', { sessionsLost: ['silent'] }, ['1 honest sessions lost']],
  ["failures at an attacker's address", { underAttack: besideAttackers }, []],
  ['memory, which only one attack alone is judged by', { peaks: { rssMib: 4000, descriptors: 1 } }, []],
  ['one attack', one, []],
  [
    'one attack, answers twice as slow',
    { ...one, underAttack: taking(12.1, 20) },
    ['HTTP/2: p50 of 12 ms is above 12 ms'],
  ],
  ['one attack, answers slower by less than 10 ms', { ...one, quiet: taking(0.5, 1), underAttack: taking(10, 20) }, []],
  [
    'one attack, a few slow answers',
    { ...one, underAttack: taking(12, 101) },
    ['HTTP/2: p99 of 101 ms is above 100 ms'],
  ],
  ['one attack, on a busy machine', { ...one, quiet: taking(6, 90), underAttack: taking(12, 180) }, []],
  ['one attack, a failure', { ...one, underAttack: clients({ ECONNRESET: 1 }, 10) }, ['HTTP/2: 1 failed']],
  ['one attack, a lost session', { ...one, sessionsLost: ['silent'] }, ['1 honest sessions lost']],
  ['one attack, all the memory', { ...one, peaks: { rssMib: 512, descriptors: 1 } }, []],
  [
    'one attack, more memory',
    { ...one, peaks: { rssMib: 513, descriptors: 1 } },
    ['513 MiB resident are above 512 MiB'],
  ],
  [
    'one attack, more memory than a smaller heap',
    { ...one, heapMib: 64, peaks: { rssMib: 297, descriptors: 1 } },
    ['297 MiB resident are above 296 MiB'],
  ],
])('names what honest clients notice of %s', (_, changes, faults) => {
  expect(faultsOf(outcome(changes))).toEqual(faults);
});

it('the report has a row for each kind of client and each attack', () => {
  const report = attackReport(
    outcome({ underAttack: clients({ ECONNRESET: 2, 'status 503': 1 }, 55), sessionsLost: ['cut'] }),
  );
  expect(report).toContain('for 30 minutes: not withstood. Honest sessions lost: 1 (cut).');
  expect(report).toContain(
    '| HTTP/2 | 2,000 | 3 | 2.5 ms | 55 ms | 2000 ms | 2.5 ms | 9.3 ms | 2 × ECONNRESET, 1 × status 503 |',
  );
  expect(report).toContain('| heartbeats | 1,200 | 3 | 900 |');
});
