import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { LiveSession } from '../../../src/gateway/endpoints/live-view.ts';
import { FleetUpdates } from '../../../src/gateway/releases/fleet-updates.ts';
import { resumeVersion, stoppedVersions } from '../../../src/gateway/store/agent-updates.ts';
import { openStore, type Store } from '../../../src/gateway/store/store.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { liveOf } from '../../support/nothing-online.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const MINUTE = 60_000;
const VERSION = '2.0.0';

let store: Store;
let clock: SteeredClock;
let fleet: FleetUpdates;
let online: Set<string>;
let events: { type: string; object: Readonly<Record<string, unknown>> }[];

/** A gateway that has just started, with the database that is there. */
function start(): FleetUpdates {
  const live = liveOf({ sessions: () => [...online].map((credentialId) => ({ credentialId }) as LiveSession) });
  const activity = {
    note: (type: string, describe: () => Readonly<Record<string, unknown>>) =>
      void events.push({ type, object: describe() }),
    sample: () => {},
  };
  return new FleetUpdates({ store, activity, clock, log: silentLog, live });
}

beforeEach(async () => {
  clock = new SteeredClock();
  const begin = clock.now();
  const wallClock = () => Date.UTC(2026, 0, 1) + clock.now() - begin;
  store = openStore(join(temporaryFolder(), 'gateway.db'), new SecretsBox(randomBytes(32)), wallClock);
  events = [];
  online = new Set();
  fleet = start();
  onTestFinished(() => {
    fleet.stop();
    store.database.close();
  });
  await clock.advance(6 * MINUTE);
});

/** Devices that are online. @returns the ids of their authtokens */
async function devices(count: number): Promise<string[]> {
  const ids = await store.database.write(() =>
    Array.from({ length: count }, () => issueCredential(store, { acl: [] }).row.id),
  );
  for (const id of ids) online.add(id);
  return ids;
}

const says = (id: string, state: 'wanted' | 'started' | 'confirmed' | 'returned', reason?: string) =>
  fleet.take(id, { version: VERSION, state, ...(reason !== undefined && { reason }) });

const isStopped = () => stoppedVersions(store.database).some(({ version }) => version === VERSION);

describe('a version that devices try', () => {
  it('is stopped when two went back, with the reason of one, once', async () => {
    const ids = await devices(4);
    for (const id of ids.slice(0, 2)) {
      expect(await says(id, 'wanted')).toMatchObject({ decision: 'go' });
      expect(await says(id, 'started')).toMatchObject({ decision: 'go' });
      await says(id, 'returned', 'it was not online within 120 s');
    }
    const reason =
      'of 2 devices that have taken version 2.0.0, 2 went back, one because it was not online within 120 s';
    expect(await says(String(ids[2]), 'wanted')).toEqual({ decision: 'stop', reason, retry_after_s: null });
    expect(await says(String(ids[3]), 'started')).toMatchObject({ decision: 'stop' });
    expect(events).toEqual([{ type: 'update_stopped.v0', object: { version: VERSION, reason } }]);
    // Another version is not concerned, and a restarted gateway remembers it.
    expect(await fleet.take(String(ids[2]), { version: '2.0.1', state: 'wanted' })).toMatchObject({ decision: 'go' });
    fleet.stop();
    fleet = start();
    expect(await says(String(ids[2]), 'wanted')).toMatchObject({ decision: 'stop' });
  });

  it('is stopped when two are not back after ten minutes, without anybody asking', async () => {
    const ids = await devices(3);
    for (const id of ids.slice(0, 2)) {
      await says(id, 'started');
      online.delete(id);
    }
    await clock.advance(9 * MINUTE);
    expect([isStopped(), events]).toEqual([false, []]);
    await clock.advance(2 * MINUTE);
    await expect.poll(isStopped).toBe(true);
    expect(stoppedVersions(store.database)).toMatchObject([
      { reason: expect.stringMatching(/^of 2 .*, 2 did not come back$/) },
    ]);
  });

  it('is not stopped by one device of many, or by those that are online without a word', async () => {
    const ids = await devices(12);
    for (const id of ids) {
      await says(id, 'started');
      await says(id, 'confirmed');
    }
    const [one = '', ...quiet] = await devices(3);
    await says(one, 'started');
    await says(one, 'returned', 'it crashed');
    for (const id of quiet) await says(id, 'started');
    await clock.advance(30 * MINUTE);
    expect(await says(String(ids[0]), 'wanted')).toMatchObject({ decision: 'go' });
  });

  it('is tried by three devices first, and by more once these stay on it', async () => {
    const ids = await devices(5);
    for (const id of ids.slice(0, 3)) await says(id, 'started');
    expect(await says(String(ids[3]), 'wanted')).toEqual({
      decision: 'wait',
      reason: 'version 2.0.0 is tried by a few devices first, whose results are not known yet',
      retry_after_s: 60,
    });
    // Those that wait do not make each other wait, and of those that ask at the same moment, no more may go.
    expect(await Promise.all(ids.slice(3).map((id) => says(id, 'started')))).toMatchObject([
      { decision: 'wait' },
      { decision: 'wait' },
    ]);
    // One that repeats its own question does not wait for itself.
    expect(await says(String(ids[0]), 'started')).toMatchObject({ decision: 'go' });
    await says(String(ids[0]), 'confirmed');
    expect(await says(String(ids[3]), 'wanted')).toMatchObject({ decision: 'go' });
  });

  it('is not stopped because the gateway was restarted, and devices are not back yet', async () => {
    const ids = await devices(3);
    for (const id of ids.slice(0, 3)) await says(id, 'started');
    await clock.advance(9 * MINUTE);
    fleet.stop();
    online.clear();
    fleet = start();
    await clock.advance(4 * MINUTE);
    expect([await says('cr_other', 'wanted'), isStopped()]).toMatchObject([{ decision: 'wait' }, false]);
    for (const id of ids) online.add(id);
    await clock.advance(10 * MINUTE);
    expect([await says('cr_other', 'wanted'), isStopped()]).toMatchObject([{ decision: 'go' }, false]);
  });

  it('can be installed again once an operator says so, though devices had gone back', async () => {
    const ids = await devices(3);
    for (const id of ids.slice(0, 2)) {
      await says(id, 'started');
      await says(id, 'returned', 'it crashed');
    }
    expect(isStopped()).toBe(true);
    await store.database.write(() => {
      store.agentUpdates.forgetFailed(VERSION);
      return resumeVersion(store.database, VERSION);
    });
    expect(await says(String(ids[2]), 'started')).toMatchObject({ decision: 'go' });
    await says(String(ids[2]), 'returned', 'it crashed');
    expect(isStopped()).toBe(false);
  });
});

/** A night in which 500 devices look for updates within three hours, and what a version does to each. */
async function night(outcome: 'stays' | 'goes back' | 'stays away') {
  const ids = await devices(500);
  const ends: { at: number; id: string }[] = [];
  let [taken, postponed] = [0, 0];
  for (const id of ids) {
    await clock.advance((3 * 60 * MINUTE) / 500);
    while (ends[0] && ends[0].at <= clock.now()) {
      const { id: done = '' } = ends.shift() ?? {};
      online.add(done);
      await says(done, outcome === 'stays' ? 'confirmed' : 'returned');
    }
    const answer = await says(id, 'wanted');
    if (answer.decision !== 'go') {
      postponed += 1;
      continue;
    }
    await says(id, 'started');
    taken += 1;
    online.delete(id);
    if (outcome !== 'stays away') ends.push({ at: clock.now() + (outcome === 'stays' ? MINUTE / 2 : 5 * MINUTE), id });
  }
  return { taken, postponed };
}

describe('500 devices', () => {
  it('get a version that works in one night', async () => {
    const { taken, postponed } = await night('stays');
    expect([taken, postponed]).toEqual([500, 0]);
  });

  it.each(['goes back', 'stays away'] as const)('lose no more than three to one that %s', async (outcome) => {
    const { taken } = await night(outcome);
    expect([taken, isStopped()]).toEqual([3, true]);
  });
});
