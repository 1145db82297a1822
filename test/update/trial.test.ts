import { describe, expect, it } from 'vitest';
import { rounds } from '../faults/rounds.ts';
import { PowerCut } from '../support/power-cut-files.ts';
import { seeded } from '../support/seeded.ts';
import {
  type Behaviour,
  GOOD,
  SharedTurns,
  TRIAL_KINDS,
  TrialDevice,
  type TrialKind,
  TUNNELS,
} from './trial-device.ts';

const HOUR = 3600;
const [ONE = ''] = TUNNELS;

/** Versions that do not work, and what is said about them. */
const BAD: Record<string, [Behaviour, RegExp]> = {
  'never answers': [{ ...GOOD, answers: false }, /did not answer within 120 s/],
  'is never online': [{ ...GOOD, online: false }, /was not online within 120 s/],
  'loses a tunnel': [{ ...GOOD, loses: [ONE] }, /one\.example\.com was not online/],
  'crashes at its start': [{ ...GOOD, crashes: true }, /ended 3 times/],
  'fails its doctor': [{ ...GOOD, broken: 'doctor: Data folder: full' }, /doctor: Data folder: full/],
  'writes data that the old one cannot read, and is never online': [
    { ...GOOD, online: false, format: 2 },
    /not online/,
  ],
};

const staged = (behaviour: Behaviour) => TrialDevice.staged(behaviour, seeded(1));
const saidWhy = (device: TrialDevice) => device.told.filter((line) => line.includes('given up'));

describe('an update without interruptions', () => {
  it('keeps a version that works', async () => {
    const device = await staged(GOOD);
    expect(await device.runUnit()).toBe(null);
    expect([device.running, await device.works()]).toEqual(['2.0.0', true]);
    expect((await device.records.history()).last).toMatchObject({ result: 'confirmed', to: '2.0.0' });
  });

  it.each(Object.entries(BAD))(
    'goes back from a version that %s, and says why once',
    async (_, [behaviour, reason]) => {
      const device = await staged(behaviour);
      expect(await device.runUnit()).toBe(null);
      expect([device.running, await device.works(), await device.records.trial()]).toEqual(['1.0.0', true, null]);
      expect(saidWhy(device)).toEqual([expect.stringMatching(reason)]);
      const { last, rejected } = await device.records.history();
      expect([last?.result, rejected]).toEqual([
        'returned',
        [{ version: '2.0.0', reason: expect.stringMatching(reason) }],
      ]);
    },
  );

  it('goes back from a version whose trial is cut off from power three times', async () => {
    const device = await staged(GOOD);
    for (let cut = 0; cut < 3; cut++) {
      device.disk.operationsLeft = 14;
      expect(await device.runUnit()).toBeInstanceOf(PowerCut);
      await device.powerCut(0);
    }
    await device.runUnit();
    expect([device.running, saidWhy(device)]).toEqual(['1.0.0', [expect.stringMatching(/interrupted 3 times/)]]);
  });

  it('while the network is down, goes back without rejecting the version, twice', async () => {
    const outcomes = [];
    const device = await staged(GOOD);
    for (let round = 0; round < 3; round++) {
      device.isNetworkUp = false;
      if (round > 0) await device.stageAgain();
      await device.runUnit();
      outcomes.push((await device.records.history()).rejected.length);
    }
    expect([outcomes, device.running]).toEqual([[0, 0, 1], '1.0.0']);
  });
});

describe('a gateway that is updated', () => {
  const withAgents = async (behaviour: Behaviour, agents: number, ownAgents = 0) => {
    const device = await staged(behaviour);
    const trial = await device.records.trial();
    if (trial === null) throw new Error('a version is staged');
    await device.records.keepTrial({ ...trial, before: { ...trial.before, sessions: agents, ownAgents } });
    return device;
  };

  it('stays on a version with nine of ten agents that were there before', async () => {
    const device = await withAgents({ ...GOOD, agents: 18 }, 20);
    await device.runUnit();
    expect([device.running, device.isHeld]).toEqual(['2.0.0', false]);
  });

  it('goes back from one with fewer, and accepts changes again', async () => {
    const device = await withAgents({ ...GOOD, agents: 17 }, 20);
    await device.runUnit();
    expect([device.running, device.isHeld]).toEqual(['1.0.0', false]);
    expect(saidWhy(device)).toEqual([expect.stringMatching(/17 of 20 agents were back within 120 s/)]);
  });

  it.each([
    { after: 20, within: [20, 40], said: [] },
    { after: 10_000, within: [45, 60], said: ['none of its agents has come back: they stay at other gateways'] },
  ])('waits for an agent that went to another gateway, but not forever: one is back after $after s', async (it) => {
    const began = 1_000;
    const device = await withAgents({ ...GOOD, hasOwnFrom: began + it.after }, 20, 5);
    await device.runUnit();
    expect(device.running).toBe('2.0.0');
    const [least = 0, most = 0] = it.within;
    expect(device.uptime - began).toBeGreaterThanOrEqual(least);
    expect(device.uptime - began).toBeLessThan(most);
    expect(device.told.filter((line) => line.includes('come back'))).toEqual(it.said);
  });

  it('stays on a version that crashes later, when going back would lose changes, and says so', async () => {
    const device = await staged(GOOD);
    await device.runUnit();
    device.obstacle = 'it has changed the schema';
    device.pass(60);
    for (let crash = 0; crash < 3; crash++) device.crash();
    await device.runUnit();
    expect([device.running, await device.records.trial()]).toEqual(['2.0.0', null]);
    const { last, rejected } = await device.records.history();
    expect([last, rejected]).toMatchObject([
      { result: 'kept', to: '2.0.0', reason: expect.stringMatching(/crashed 3 times .*: it has changed the schema$/) },
      [],
    ]);
  });
});

describe('a gateway that shares its database', () => {
  const withTurns = (behaviour: Behaviour, turns: SharedTurns, name: string) =>
    TrialDevice.staged(behaviour, seeded(1), 'folder', turns, name);

  it('does not touch the version that runs when it is not its turn, and may try the new one later', async () => {
    const turns = new SharedTurns();
    turns.holder = 'another';
    const device = await withTurns(GOOD, turns, 'one');
    expect(await device.runUnit()).toBe(null);
    expect([device.running, device.isHeld, await device.records.trial(), turns.holder]).toEqual([
      ...['1.0.0', false, null, 'another'],
    ]);
    const { last, rejected, doubtful } = await device.records.history();
    expect([last, rejected, doubtful]).toMatchObject([{ result: 'returned', reason: 'it is not its turn' }, [], {}]);
    turns.holder = null;
    await device.stageAgain();
    await device.runUnit();
    expect([device.running, turns]).toMatchObject(['2.0.0', { holder: null, givenUp: [] }]);
  });

  it('goes back after a power cut when its turn was given to another one meanwhile', async () => {
    const turns = new SharedTurns();
    const device = await withTurns(GOOD, turns, 'one');
    device.disk.operationsLeft = 14;
    expect(await device.runUnit()).toBeInstanceOf(PowerCut);
    await device.powerCut(0);
    turns.holder = 'another';
    expect(await device.runUnit()).toBe(null);
    expect([device.running, turns.holder]).toEqual(['1.0.0', 'another']);
    // It is not the version's fault.
    expect([turns.givenUp, (await device.records.history()).rejected]).toEqual([[], []]);
  });

  it.each([
    ['works', GOOD, '2.0.0', []],
    ['is never online', { ...GOOD, online: false }, '1.0.0', ['it was not online within 120 s']],
  ])(
    'keeps its turn until the shared database answers again, if the version %s, and says once how it ended',
    async (_, behaviour, version, reasons) => {
      const turns = new SharedTurns();
      const device = await withTurns(behaviour, turns, 'one');
      const runs: unknown[] = [];
      device.onStart = () => {
        turns.isAway = true;
      };
      for (let run = 0; run < 3; run++) runs.push(await device.runUnit());
      expect([runs.every((run) => run instanceof Error), turns.holder]).toEqual([true, 'one']);
      turns.isAway = false;
      expect(await device.runUnit()).toBe(null);
      expect([device.running, turns.holder, turns.givenUp]).toEqual([version, null, reasons]);
      const { rejected, doubtful } = await device.records.history();
      expect([rejected.length, doubtful['2.0.0'] ?? 0]).toEqual([reasons.length, reasons.length]);
    },
  );
});

describe('after a version is confirmed', () => {
  const confirmed = async () => {
    const device = await staged(GOOD);
    await device.runUnit();
    return device;
  };
  const crashes = async (device: TrialDevice, ...afterSeconds: number[]) => {
    for (const seconds of afterSeconds) {
      device.pass(seconds);
      device.crash();
      await device.runUnit();
    }
    return device.running;
  };

  it('three crashes within minutes make it go back, an hour later, too', async () => {
    const device = await confirmed();
    expect(await crashes(device, HOUR, 60, 60)).toBe('1.0.0');
    expect(saidWhy(device)).toEqual([expect.stringMatching(/crashed 3 times within 10 min/)]);
    expect((await device.records.history()).rejected).toHaveLength(1);
  });

  it('five crashes hours apart do so as well; four do not', async () => {
    const device = await confirmed();
    expect(await crashes(device, HOUR, HOUR, HOUR, HOUR)).toBe('2.0.0');
    expect(await crashes(device, HOUR)).toBe('1.0.0');
  });

  it('crashes on the next day do not', async () => {
    const device = await confirmed();
    expect(await crashes(device, 25 * HOUR, 1, 1, 1)).toBe('2.0.0');
    expect(await device.records.trial()).toBe(null);
  });

  it('a clock that jumps by years does not end the watch within a boot', async () => {
    const device = await confirmed();
    device.wall += 5 * 365 * 24 * HOUR * 1000;
    expect(await crashes(device, 60, 60, 60)).toBe('1.0.0');
  });
});

/** One update with kills, power cuts and full disks at random steps. */
async function history(seed: number, kind: TrialKind): Promise<void> {
  const random = seeded(seed * 7919 + 1);
  const kinds = [GOOD, GOOD, ...Object.values(BAD).map(([behaviour]) => behaviour)];
  const behaviour = kinds[seed % kinds.length] ?? GOOD;
  const device = await TrialDevice.staged(behaviour, random, kind);
  const faults = Math.floor(random() * 5);
  const said: string[] = [];
  let fullDisks = 0;
  for (let run = 0; ; run++) {
    const isFaulty = run < faults;
    const fault = random();
    if (isFaulty && fault < 0.75) device.disk.operationsLeft = Math.floor(random() * (random() < 0.5 ? 30 : 170));
    else if (isFaulty) {
      fullDisks += 1;
      device.disk.failure = { operation: random() < 0.5 ? 'write' : 'sync', code: 'ENOSPC' };
    }
    const failure = await device.runUnit();
    if (failure === null) break;
    said.push(String(failure));
    if (!(failure instanceof PowerCut)) {
      // The full disk; systemd starts the unit again, and somebody frees some space.
      expect(failure).toMatchObject({ code: 'ENOSPC' });
      expect(device.running, 'an agent runs on a full disk').not.toBe(null);
      device.disk.failure = null;
      await device.killed();
    } else if (fault < 0.35) await device.killed();
    else await device.powerCut((random() - 0.5) * 1e10);
    if (run > 20) throw new Error(`no end: ${said.join(', ')}; ${device.told.join('; ')}`);
  }
  device.disk.failure = null;
  device.disk.operationsLeft = Number.POSITIVE_INFINITY;
  const { last, rejected } = await device.records.history();
  const trial = await device.records.trial();
  expect(device.second, 'no second agent').toBe(0);
  expect(await device.works(), 'a version works').toBe(true);
  expect(device.isHeld, 'changes are accepted again').toBe(false);
  expect(device.turns.holder, 'others have their turn').toBe(null);
  expect(device.running, 'it is the one of the next start').toBe(device.wholeProgram());
  if (device.running === '2.0.0') {
    // A clock that jumps over a reboot can end the probation.
    expect([behaviour, last?.result, trial?.state ?? 'over']).toEqual([
      GOOD,
      'confirmed',
      expect.stringMatching(/^(probation|over)$/),
    ]);
    return;
  }
  expect(device.turns.givenUp.length, 'others do not try it').toBeGreaterThan(0);
  expect([trial, last?.result, last?.reason]).toEqual([null, 'returned', expect.stringMatching(/./)]);
  expect(rejected, 'no second try').toMatchObject([{ version: '2.0.0' }]);
  // Once; a cut between the decision and its message leaves it to the history, and a full disk keeps no decision.
  expect(saidWhy(device).length).toBeLessThanOrEqual(1 + fullDisks);
}

describe.each(TRIAL_KINDS)('an update of the kind %s that is interrupted once, at any step,', (kind) => {
  const offline: Behaviour = { ...GOOD, online: false };
  it.each([
    { fault: 'killed', name: 'works', behaviour: GOOD, version: '2.0.0' },
    { fault: 'killed', name: 'is never online', behaviour: offline, version: '1.0.0' },
    { fault: 'cut off from power', name: 'works', behaviour: GOOD, version: '2.0.0' },
    { fault: 'cut off from power', name: 'is never online', behaviour: offline, version: '1.0.0' },
  ])('$fault, ends with one whole version, if the new one $name', async ({ fault, behaviour, version }) => {
    let [without, isOver] = [0, false];
    for (let steps = 0; !isOver; steps++) {
      const device = await TrialDevice.staged(behaviour, seeded(steps), kind);
      device.disk.operationsLeft = steps;
      isOver = (await device.runUnit()) === null;
      await (fault === 'killed' ? device.killed() : device.powerCut(0));
      without += Number(device.running === null);
      for (let run = 0; (await device.runUnit()) !== null; run++) expect(run, `step ${steps}`).toBeLessThan(5);
      expect([steps, device.running, device.wholeProgram(), device.second]).toEqual([steps, version, version, 0]);
    }
    // Two programs cannot change places in one step; the watcher, which has a copy of its own, completes it.
    expect(without > 0, `${without} starts without a program`).toBe(kind === 'npm');
  });
});

const HISTORIES = rounds({ short: 60, full: 500 });

describe(`${HISTORIES} updates that are killed, cut off from power, or find a full disk`, () => {
  it.each(TRIAL_KINDS)(
    'of the kind %s end with one agent that works, its reason recorded, and no second try',
    async (kind) => {
      for (let seed = 0; seed < HISTORIES; seed++) {
        await history(seed, kind).catch((error: unknown) => {
          throw new Error(`history ${seed}: ${error instanceof Error ? error.message : error}`, { cause: error });
        });
      }
    },
  );
});
