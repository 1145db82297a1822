import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Condition, presentConditions } from '../../../src/gateway/conditions/conditions.ts';
import type { LiveSession } from '../../../src/gateway/endpoints/live-view.ts';
import type { Message } from '../../../src/gateway/events/message.ts';
import { reasonsOf, silence } from '../../../src/gateway/messages/condition-records.ts';
import { MESSAGES_AN_HOUR } from '../../../src/gateway/messages/message-drafts.ts';
import { MessageEngine } from '../../../src/gateway/messages/message-engine.ts';
import { LOOK_MS, startMessages } from '../../../src/gateway/messages/start-messages.ts';
import { EdgeCounters } from '../../../src/gateway/metrics/edge-counters.ts';
import type { DeviceRow } from '../../../src/gateway/store/devices.ts';
import { MESSAGE_TYPE } from '../../../src/gateway/store/events.ts';
import { openStore, type Store } from '../../../src/gateway/store/store.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { CONDITIONS, type ConditionId } from '../../../src/management/condition-kinds.ts';
import { MessageRuleCreate } from '../../../src/management/resources/message-rule.ts';
import { joinedDevices } from '../../support/joined-devices.ts';
import { liveOf } from '../../support/nothing-online.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const MINUTE_MS = 60_000;
const START = Date.parse('2026-11-30T03:00:00Z');

let folder: string;
let box: SecretsBox;
let store: Store;
let clock: SteeredClock;
let wall: number;
let engine: MessageEngine;
/** Besides devices that are offline. */
let wrong: Condition[];
let online: Set<string>;
let isSender: boolean;
let destination: string;

beforeEach(async () => {
  folder = temporaryFolder();
  [box, clock, wall] = [new SecretsBox(randomBytes(32)), new SteeredClock(), START];
  [wrong, online, isSender] = [[], new Set(), true];
  store = openStore(join(folder, 'gateway.db'), box, () => wall);
  onTestFinished(() => store.database.close());
  engine = started();
  destination = await addDestination('ops');
});

function started(of: Store = store, isOwn: () => boolean = () => isSender): MessageEngine {
  const sources = {
    ...{ endpoints: { list: () => [], labeled: () => [] }, counters: new EdgeCounters() },
    ...{ activity: { lostAt: Number.NEGATIVE_INFINITY }, dataDir: folder, hasDailyBackups: false, releases: () => [] },
    ...{ databaseAway: () => null, databaseDetour: () => null, hasNoPrimary: () => false, latencyLimitMs: 0, runs: '' },
    nextCa: () => null,
    ownCas: () => [],
    undecryptable: () => null,
  };
  const live = liveOf({ sessions: () => [...online].map((credentialId) => ({ credentialId }) as LiveSession) });
  return new MessageEngine(
    { store: of, clock, log: silentLog },
    {
      conditions: async () => [...(await presentConditions({ store: of, live, ...sources })), ...wrong],
      live: {},
      origin: 'https://api.gateway.test',
      isSender: isOwn,
    },
  );
}

/** Lets time pass, in which the gateway looks as often as usual. */
async function pass(minutes: number, looker: () => MessageEngine = () => engine): Promise<void> {
  for (let left = minutes * MINUTE_MS; left > 0; left -= LOOK_MS) {
    wall += LOOK_MS;
    clock.skip(LOOK_MS);
    await looker().look();
  }
}

async function addDestination(name: string): Promise<string> {
  const id = store.ids.next('ed');
  await store.database.write(() => {
    const target = { kind: 'file', name } as const;
    const row = { id, created_at: store.now(), description: null, metadata: null };
    const whole = { ...row, ...store.eventDestinations.sealed(target, id) };
    store.eventDestinations.insert(whole);
    store.eventDeliveries.begin(whole);
  });
  return id;
}

async function addRule(given: MessageRuleCreate = {}): Promise<string> {
  const {
    description = null,
    metadata = null,
    ...body
  } = MessageRuleCreate.parse({
    destination_ids: [destination],
    ...given,
  });
  const id = store.ids.next('mr');
  await store.database.write(() =>
    store.messageRules.insert({ id, created_at: store.now(), description, metadata, ...body }),
  );
  return id;
}

/** Devices that were online until now and whose network or power is gone since then. */
async function gone(all: readonly Partial<DeviceRow>[]): Promise<DeviceRow[]> {
  return joinedDevices(store, all);
}

function back(devices: readonly DeviceRow[]): void {
  for (const { credential_id } of devices) if (credential_id !== null) online.add(credential_id);
}

function messages(to = destination, of: Store = store): (Message & { id: string })[] {
  return of.activityEvents
    .where('type = ? AND only_for = ? ORDER BY id', [MESSAGE_TYPE, to])
    .map(({ id, object }) => ({ ...(object as unknown as Message), id }));
}
const told = (to = destination) => messages(to).map(({ kind, title }) => [kind, title]);

const happening = (id: ConditionId, more: Partial<Condition> = {}): Condition => {
  const { severity, title, remedy } = CONDITIONS[id];
  return { id, severity, message: title, remedy, ...more };
};

describe('a device that goes offline', () => {
  it('is told once after its time, and once when it is over, with since when and how long', async () => {
    await addRule({ after_minutes: 5 });
    await pass(3);
    const devices = await gone([{ name: 'cam-1', labels: { floor: '2' } }, { name: 'cam-2' }]);
    back(devices.slice(1));
    await pass(5);
    expect(told()).toEqual([]);
    await pass(30);
    expect(told()).toEqual([['begun', 'cam-1 at quarry.example.com is offline since 03:03 UTC']]);
    back(devices);
    await pass(30);
    expect(told()).toEqual([
      ['begun', 'cam-1 at quarry.example.com is offline since 03:03 UTC'],
      ['over', 'cam-1 at quarry.example.com is online again, after 35 min'],
    ]);
    const [begun, over] = messages();
    expect(begun).toMatchObject({ severity: 'warning', incident: null, remedy: CONDITIONS.device_offline.remedy });
    expect(begun?.links[0]).toMatchObject({
      url: expect.stringMatching(/^https:\/\/api\.gateway\.test\/messages\/evt_/),
    });
    expect(over).toMatchObject({ severity: 'resolved', incident: begun?.id, ended: [begun?.id] });
    expect(store.conditionHistory.unsettled()).toEqual([]);
  });

  it('is not told when it never was online, is revoked, or comes back in time', async () => {
    await addRule();
    await gone([{ last_seen_at: null }, { status: 'revoked' }, { status: 'pending' }]);
    for (let times = 0; times < 5; times++) {
      const devices = await gone([{ name: `door-${times}` }]);
      await pass(4);
      back(devices);
      await pass(4);
    }
    expect(told()).toEqual([]);
  });

  it('is not said to be online again when it was revoked or deleted', async () => {
    await addRule();
    const [revoked, deleted] = await gone([{ site: 'mine.example.com' }, {}]);
    await pass(10);
    await store.database.write(() => {
      if (revoked) store.devices.update({ ...revoked, status: 'revoked' });
      store.devices.delete(String(deleted?.id));
    });
    await pass(10);
    const titles = told().flatMap(([kind, title]) => (kind === 'over' ? [title] : []));
    expect(titles).toEqual([expect.stringMatching(/^2 devices \(.*\) were revoked or deleted while offline$/)]);
  });

  it('is not told for 50 restarts of the gateway, nor for 50 of its agent', async () => {
    await addRule({ after_minutes: 1 });
    const devices = await gone([{}, {}, {}]);
    for (let restart = 0; restart < 50; restart++) {
      online.clear();
      engine = started();
      await pass(1);
      back(devices);
      await pass(0.5);
    }
    engine = started();
    await pass(5);
    for (let restart = 0; restart < 50; restart++) {
      online.clear();
      await pass(0.75);
      back(devices);
      await pass(0.75);
    }
    expect(told()).toEqual([]);
  });

  it('is told after its time although the gateway restarts meanwhile, of which each takes a minute or two', async () => {
    await addRule({ after_minutes: 30 });
    await gone([{ name: 'cam-1' }]);
    let minutes = 0;
    for (; told().length === 0 && minutes < 90; minutes += 8) {
      engine = started();
      await pass(8);
    }
    expect(told()).toEqual([['begun', 'cam-1 at quarry.example.com is offline since 03:00 UTC']]);
    expect(minutes).toBeGreaterThanOrEqual(32);
    expect(minutes).toBeLessThanOrEqual(48);
    await pass(2);
    expect(store.database.fact('conditions_seen')).toBeNull();
  });

  it('is not told earlier because it was offline before, and came back', async () => {
    await addRule({ after_minutes: 10 });
    const devices = await gone([{}]);
    await pass(9);
    back(devices);
    engine = started();
    await pass(6);
    online.clear();
    engine = started();
    await pass(9);
    expect(told()).toEqual([]);
  });

  it('is one message for 500 devices behind one link, although they are missed one after another', async () => {
    await addRule();
    const names = Array.from({ length: 500 }, (_, at) => ({ name: `cam-${at}`, site: `site-${at % 3}.example.com` }));
    const devices = await gone(names.map((each) => ({ ...each, last_ip: '198.51.100.9' })));
    const others = await gone([{ last_ip: '203.0.113.7' }, { last_ip: '203.0.113.8', site: 'site-1.example.com' }]);
    back([...devices, ...others]);
    await pass(3);
    wall += MINUTE_MS;
    const since = store.now();
    for (let at = 0; at < 500; at += 125) {
      await store.database.write(() => {
        for (const { id, credential_id } of devices.slice(at, at + 125)) {
          online.delete(String(credential_id));
          store.devices.saw(id, { last_seen_at: since });
        }
      });
      await pass(0.25);
    }
    await pass(20);
    expect(told()).toEqual([
      ['begun', '500 devices behind 198.51.100.9 are offline since 03:04 UTC: their internet connection'],
    ]);
    back(devices.slice(0, 499));
    await pass(10);
    back(devices);
    await pass(10);
    expect(told().slice(1)).toEqual([
      ['changed', expect.stringMatching(/\(499 of 500\) are online again/)],
      ['over', expect.stringMatching(/^cam-499 at site-1\.example\.com is online again/)],
    ]);
    expect(messages().at(-1)?.ended).toEqual([messages()[0]?.id]);
  });

  it.each([
    [
      'all of a site',
      [{}, {}, {}],
      '3 devices of quarry.example.com are offline since 03:00 UTC: its internet connection',
    ],
    [
      'all of the gateway',
      [{}, {}, { site: 'mine.example.com' }],
      "all 3 devices are offline since 03:00 UTC: this gateway's own connection or name",
    ],
    [
      'all of a site, but not together',
      [{ last_seen_at: '2026-11-30T02:00:00Z' }, {}],
      '2 devices of quarry.example.com (cam-1, cam-2) are offline since 02:00 UTC',
    ],
  ])('is told with others by their cause: %s', async (_, devices, title) => {
    await addRule();
    await gone(devices);
    await pass(10);
    expect(told()).toEqual([['begun', title]]);
  });

  it('that comes and goes is told once, and its end when it has been steady', async () => {
    await addRule({ after_minutes: 1 });
    await pass(2);
    const devices = await gone([{}]);
    for (let times = 0; times < 8; times++) {
      online.clear();
      await store.database.write(() => store.devices.saw(String(devices[0]?.id), { last_seen_at: store.now() }));
      await pass(4);
      back(devices);
      await pass(5);
    }
    await pass(40);
    const kinds = messages().map(({ kind, lines }) => (lines.join().includes('comes and goes') ? 'flapping' : kind));
    expect(kinds).toEqual(['begun', 'over', 'begun', 'over', 'flapping', 'over']);
  });
});

describe('the rules', () => {
  const upstream = (key: string, site: string | null, labels = {}) =>
    happening('upstream', { subjects: [{ key, name: key, site, labels }] });

  it('choose by condition, site, label and endpoint', async () => {
    const own: Record<string, MessageRuleCreate> = {
      all: {},
      certificates: { conditions: ['domain_certificate'] },
      upstreams: { conditions: ['upstream'] },
      site: { sites: ['a.example.com'] },
      label: { labels: { floor: '2' } },
      pattern: { subjects: ['cam*.a.example.com'] },
      others: { subjects: ['https://door.a.example.com'] },
    };
    const places = new Map<string, string>();
    for (const [name, rule] of Object.entries(own)) {
      places.set(name, await addDestination(name));
      await addRule({ ...rule, destination_ids: [String(places.get(name))], description: name });
    }
    wrong = [upstream('https://cam-1.a.example.com', 'a.example.com', { floor: '2' })];
    await pass(10);
    const toldTo = [...places].flatMap(([name, id]) => (messages(id).length === 1 ? [name] : []));
    expect(toldTo).toEqual(['all', 'upstreams', 'site', 'label', 'pattern']);
    const [row] = store.conditionHistory.unsettled();
    if (!row) throw new Error('nothing is wrong');
    const reasons = reasonsOf(store, row).join('\n');
    expect(reasons).toMatch(/Rule certificates: nobody is told, because it is not about upstream\./);
    expect(reasons).toMatch(/Rule others: nobody is told, because it is for other endpoints or devices\./);
    expect(reasons).toMatch(/Rule all: all\.jsonl was told at \S+: the message waits to be sent\./);
  });

  it('send reminders until somebody acknowledges', async () => {
    await addRule({ remind_minutes: 60 });
    await gone([{}]);
    await pass(150);
    expect(told().map(([kind]) => kind)).toEqual(['begun', 'reminder', 'reminder']);
    const [row] = store.conditionHistory.unsettled();
    await store.database.write(() => {
      if (row) store.conditionHistory.update({ ...row, acknowledged_at: store.now(), acknowledged_by: 'link' });
    });
    await pass(150);
    expect(told().map(([kind]) => kind)).toEqual(['begun', 'reminder', 'reminder']);
  });

  it('are quiet in their hours, but for what is critical, and send one summary afterwards', async () => {
    // 03:00 UTC is 04:00 in Berlin.
    await addRule({ quiet_hours: '22:00-07:00 Europe/Berlin' });
    const devices = await gone([{ name: 'cam-1' }]);
    await gone([{ name: 'cam-2', site: 'mine.example.com' }]);
    wrong = [happening('server_errors')];
    await pass(20);
    back(devices);
    expect(told()).toEqual([
      ['begun', expect.stringMatching(/^Many responses are errors \(5xx\), since 04:00 (?:CET|GMT\+1)$/)],
    ]);
    const [row] = store.conditionHistory.unsettled().filter(({ name }) => name === 'cam-1');
    expect(row && reasonsOf(store, row).join()).toMatch(/was not told at \S+: quiet hours\./);
    await pass(180);
    expect(told().slice(1)).toEqual([['summary', 'Summary: 1 problem, 1 over']]);
    expect(messages()[1]?.lines).toEqual([
      'This is what happened in the quiet hours, or since.',
      'Now:',
      expect.stringMatching(/cam-2 at mine\.example\.com is offline/),
      'Over:',
      expect.stringMatching(/cam-1 at quarry\.example\.com is online again/),
    ]);
  });

  it('send a summary instead of hundreds, and no more than the limit in an hour', async () => {
    await addRule({ after_minutes: 1 });
    wrong = Array.from({ length: 300 }, (_, at) =>
      upstream(`https://cam.site-${at}.example.com`, `site-${at}.example.com`),
    );
    await pass(10);
    expect(told()).toEqual([['summary', 'Summary: 300 problems']]);
    for (let at = 0; at < 40; at++) {
      wrong = [...wrong, upstream(`https://late-${at}.example.com`, `late-${at}`)];
      await pass(1);
    }
    const soFar = messages().length;
    expect(soFar).toBeLessThanOrEqual(MESSAGES_AN_HOUR);
    await pass(90);
    const begun = store.conditionHistory.unsettled().filter((row) => row.told.length === 0);
    expect(begun).toEqual([]);
    expect(messages().length - soFar).toBeLessThanOrEqual(MESSAGES_AN_HOUR);
  });

  it('send nothing about what is silenced, also when it begins again', async () => {
    await addRule();
    const devices = await gone([{}]);
    await pass(10);
    const [row] = store.conditionHistory.unsettled();
    await store.database.write(() => silence(store, row ? [row] : [], 60, 'ak_1'));
    back(devices);
    await pass(10);
    online.clear();
    await pass(20);
    expect(told().map(([kind]) => kind)).toEqual(['begun']);
    const again = store.conditionHistory.chosen(null, 1, { open: 'true' }).items[0];
    expect(again && reasonsOf(store, again)[0]).toMatch(/is not told: silenced until \S+ by ak_1\./);
    await pass(60);
    expect(told().map(([kind]) => kind)).toEqual(['begun', 'begun']);
  });

  it('tell a destination nothing about its own failure', async () => {
    const other = await addDestination('other');
    await addRule({ destination_ids: [destination, other], conditions: ['event_destination'] });
    await store.database.write(() => store.eventDeliveries.failed(destination, store.now(), 'connection refused'));
    await pass(10);
    expect([told(), told(other).map(([kind]) => kind)]).toEqual([[], ['begun']]);
  });
});

describe('a gateway that is killed', () => {
  class Killed extends Error {}

  /** Kills the gateway at its n-th write: before it is durable, or right after. */
  function dying(at: number, isDurable: boolean): Store {
    let writes = 0;
    const { database } = store;
    const write: typeof database.write = async (...given) => {
      writes += 1;
      if (writes < at) return database.write(...given);
      if (writes === at && isDurable) await database.write(...given);
      throw new Killed();
    };
    const dead = new Proxy(database, {
      get: (target, name) => {
        if (name === 'write') return write;
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    return { ...store, database: dead };
  }

  it.each(
    [1, 2, 3, 4, 5, 6].flatMap((at) => [
      [at, true],
      [at, false],
    ]) as [number, boolean][],
  )('at write %i (durable: %s) tells everything once', async (at, isDurable) => {
    await addRule();
    const devices = await gone([{}, {}]);
    engine = started(dying(at, isDurable));
    await pass(12);
    // The next one starts.
    engine = started();
    await pass(12);
    back(devices);
    engine = started(dying(at, isDurable));
    await pass(8);
    engine = started();
    await pass(12);
    expect(told().map(([kind]) => kind)).toEqual(['begun', 'over']);
    expect(new Set(messages().map(({ id }) => id)).size).toBe(2);
    expect(store.conditionHistory.chosen(null, 10, {}).items.map(({ settled }) => settled)).toEqual([true, true]);
  });

  it('leaves it to the gateway that has taken over', async () => {
    await addRule();
    const devices = await gone([{}]);
    const former = started(store, () => isSender);
    const next = started(store, () => !isSender);
    await pass(4, () => former);
    isSender = false;
    await pass(20, () => former);
    expect(told()).toEqual([]);
    await pass(10, () => next);
    back(devices);
    await pass(10, () => former);
    await pass(10, () => next);
    expect(told().map(([kind]) => kind)).toEqual(['begun', 'over']);
  });
});

it('looks every 15 s once there is a rule, until it is stopped', async () => {
  let looks = 0;
  const own = { live: {}, origin: 'https://api.gateway.test', isSender: () => true };
  const conditions = async () => {
    looks += 1;
    return [];
  };
  const stop = startMessages({ store, clock, log: silentLog }, { ...own, conditions });
  await clock.advance(2 * LOOK_MS);
  await addRule();
  const step = async () => {
    await clock.advance(LOOK_MS);
    return looks === 3;
  };
  await until(step, 'three looks');
  await stop();
  await clock.advance(3 * LOOK_MS);
  expect([looks, clock.sleeping]).toEqual([3, 0]);
});

it('looks at nothing, and keeps no history, while there is no rule', async () => {
  await gone([{}]);
  await pass(30);
  expect(store.conditionHistory.page(null, 1)).toEqual([]);
});

it('forgets conditions after 13 months', async () => {
  await addRule();
  const devices = await gone([{}]);
  await pass(10);
  back(devices);
  await pass(10);
  wall += 400 * 24 * 60 * MINUTE_MS;
  wrong = [happening('server_errors')];
  await pass(10);
  expect(store.conditionHistory.page(null, 10).map(({ condition }) => condition)).toEqual(['server_errors']);
});
