import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { LossReports } from '../../../src/gateway/cluster/loss-reports.ts';
import { Nodes } from '../../../src/gateway/cluster/nodes.ts';
import type { Periods } from '../../../src/gateway/context/gateway-options.ts';
import { lostCommits } from '../../../src/gateway/store/lost-commits.ts';
import { openForChanges } from '../../../src/gateway/store/open-gateway-store.ts';
import type { Loss } from '../../../src/gateway/store/shared/replica-past.ts';
import type { SharedWrites } from '../../../src/gateway/store/shared/shared-writes.ts';
import { openStore, type Store } from '../../../src/gateway/store/store.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { closeOnce } from '../../support/close-once.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const PERIODS: Periods = { renewMs: 50, silentMs: 60_000, expiredMs: 3_600_000, marginMs: 60_000 };
const BY = { by: 'gateway', from: null };
let server: PostgresServer;

beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());

interface Serving {
  store: Store;
  shared: SharedWrites;
  losses: LossReports;
  lines: Record<string, unknown>[];
  close: () => Promise<void>;
}

/** A gateway's store on the shared database, which serves it. */
async function serve(
  databaseUrl: string,
  { address, dataDir = temporaryFolder() }: { address: string | null; dataDir?: string },
): Promise<Serving> {
  const { log, lines } = recordingLog();
  const opened = await openForChanges({ dataDir, encryptionKey: KEY, databaseUrl }, { older: 'upgrade', log });
  const { store, shared } = opened;
  if (shared === null) throw new Error('it has no shared database');
  const close = closeOnce(() => opened.close());
  const nodes = address === null ? null : new Nodes(shared.node, PERIODS);
  const losses = new LossReports(
    { store, options: { periods: PERIODS }, log: silentLog },
    { shared, nodes, acknowledged: () => ({}) },
  );
  const events = {
    onRemoved: () => {},
    onLoss: (loss: Loss) => losses.report(loss),
    ...(nodes && {
      onNodes: (...[all, askedAt]: [Parameters<Nodes['update']>[0], number]) => nodes.update(all, askedAt, []),
    }),
  };
  await shared.serve({ address: address ?? 'alone', alone: address === null, build: '1' }, events, PERIODS.renewMs);
  return { store, shared, losses, lines, close };
}

const add = ({ store }: Pick<Serving, 'store'>, id: string) =>
  store.database.write(() => store.botUsers.insert({ id, created_at: store.now(), name: id, active: true }), BY);

const botsOf = ({ store }: Pick<Serving, 'store'>) => store.botUsers.where('id > ?', ['']).map(({ id }) => id);

const entriesOf = ({ store }: Pick<Serving, 'store'>, type: string) =>
  store.auditLog.where('type = ? ORDER BY id', [type]);

const destination = { id: 'ed_1', created_at: '2026-01-01T00:00:00Z', description: null, metadata: null };

/** Sends all changes to a file, of which it is only noted here how far it is. */
function subscribe({ store }: Serving): Promise<void> {
  const { database, eventDestinations, eventSubscriptions, eventDeliveries } = store;
  return database.write(() => {
    const row = { ...destination, ...eventDestinations.sealed({ kind: 'file', name: 'all' }, destination.id) };
    eventDestinations.insert(row);
    eventSubscriptions.insert({ ...destination, id: 'esb_1', sources: ['*'], destination_ids: [destination.id] });
    eventDeliveries.begin(row);
  });
}

const waiting = ({ store: { eventDeliveries } }: Pick<Serving, 'store'>) => {
  const delivery = eventDeliveries.get(destination.id);
  return delivery === null ? [] : eventDeliveries.waiting(delivery, 9).map(({ type }) => type);
};

const sameNow = (one: Serving, other: Serving) =>
  until(async () => {
    await Promise.all([one.shared.refresh(), other.shared.refresh()]).catch(() => {});
    return one.shared.digest() === other.shared.digest();
  }, 'equal copies');

const commits = (from: PostgresServer) =>
  from.query<{ version: string; at: Date }>('SELECT version, at FROM device_agent.commits ORDER BY version');

it('a promoted standby that lacks commits: all gateways say which, once, and no event is sent again or is half there', {
  timeout: 30_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const proxy = await FlakyProxy.start(server.address);
  onTestFinished(() => proxy.close());
  const url = server.url(proxy.address);
  const [one, two] = [await serve(url, { address: '192.0.2.1:443' }), await serve(url, { address: '192.0.2.2:443' })];
  await subscribe(one);
  await add(one, 'bot_1');
  await sameNow(one, two);
  const standby = await server.standby();

  // The destination gets it, and the record of that is lost.
  const sent = one.store.auditLog.latestId();
  const acknowledge = () =>
    one.store.database.write(() => one.store.eventDeliveries.acknowledged(destination.id, sent));
  await until(
    () =>
      acknowledge().then(
        () => true,
        () => false,
      ),
    'a commit',
  );
  await add(two, 'bot_2');
  await add(one, 'bot_3');
  const lostEvent = one.store.auditLog.latestId();
  await sameNow(one, two);
  const kept = await commits(standby);
  const lost = (await commits(server)).slice(kept.length);
  proxy.divert(() => standby.address);
  await standby.promote();

  await until(() => lostCommits(two.store.database) !== null, 'what is lost');
  expect(one.losses.isOpen || two.losses.isOpen).toBe(true);
  const stop = one.losses.watch();
  onTestFinished(stop);
  await until(() => entriesOf(two, 'database_updated.v0').length > 0 && !one.losses.isOpen, 'the entry');
  await sameNow(one, two);
  const account = one.store.account;
  const after = Number(kept.at(-1)?.version);
  const since = lost[0]?.at.toISOString();
  expect(lost.length).toBeGreaterThan(2);
  for (const gateway of [one, two]) {
    expect(lostCommits(gateway.store.database)).toMatchObject({ after, commits: lost.length, isLeast: false, since });
    expect(entriesOf(gateway, 'database_updated.v0')).toMatchObject([
      {
        object_id: account,
        by: 'gateway',
        before: { id: account, commit: after + lost.length },
        after: { id: account, commit: after, lost_commits: lost.length, lost_since: since },
      },
    ]);
    expect(gateway.lines).toContainEqual(
      expect.objectContaining({ commits_lost: lost.length, lost_since: since, commit_before: after + lost.length }),
    );
    expect(waiting(gateway)).toEqual(['database_updated.v0']);
    expect(entriesOf(gateway, 'bot_user_created.v0').map(({ object_id }) => object_id)).toEqual(botsOf(gateway));
  }
  expect(botsOf(one)).toEqual(['bot_1']);
  // Its event was sent: it hides none of those that have come since then.
  await one.store.database.write(() => one.store.eventDeliveries.acknowledged(destination.id, lostEvent));
  expect(waiting(one)).toEqual(['database_updated.v0']);
});

it(
  'a gateway that was stopped when the database was put back says at its start what is lost, once',
  unless(NO_POSTGRES),
  async () => {
    const name = 'put_back';
    await server.query(`CREATE DATABASE ${name}`);
    const url = server.url().replace(/postgres$/, name);
    const dataDir = temporaryFolder();
    let gateway = await serve(url, { address: null, dataDir });
    await add(gateway, 'bot_1');
    const tables = ['cluster', 'rows', 'commits'];
    for (const table of tables) await server.query(`CREATE TABLE old_${table} AS TABLE device_agent.${table}`, name);
    await add(gateway, 'bot_2');
    await add(gateway, 'bot_3');
    await gateway.close();
    const latest = 'SELECT at FROM device_agent.commits ORDER BY version DESC LIMIT 2';
    const [, first] = await server.query<{ at: Date }>(latest, name);
    const back = tables.map(
      (table) => `TRUNCATE device_agent.${table}; INSERT INTO device_agent.${table} TABLE old_${table};`,
    );
    await server.query(back.join(' '), name);

    for (let starts = 0; starts < 2; starts += 1) {
      gateway = await serve(url, { address: null, dataDir });
      await until(() => lostCommits(gateway.store.database) !== null && !gateway.losses.isOpen, 'what is lost');
      const lost = { commits: 2, isLeast: false, since: first?.at.toISOString() };
      expect(lostCommits(gateway.store.database)).toMatchObject(lost);
      expect(entriesOf(gateway, 'database_updated.v0')).toHaveLength(1);
      expect(botsOf(gateway)).toEqual(['bot_1']);
      await gateway.close();
    }
  },
);

/** What gateways report of losses, one after another, each when it has applied some commits; the last one counts as primary. */
async function told(
  ...reports: [loss: Partial<Loss>, applied: number][]
): Promise<{ store: Store; entries: unknown[] }> {
  const store = openStore(join(temporaryFolder(), 'gateway.db'), new SecretsBox(randomBytes(32)));
  onTestFinished(() => store.database.close());
  for (const [loss, applied] of reports) {
    const shared = { applied, hasUnsaidLoss: false };
    const losses = new LossReports(
      { store, options: { periods: PERIODS }, log: silentLog },
      { shared, nodes: null, acknowledged: () => ({}) },
    );
    const base = { version: 0, id: '' };
    await losses.report({
      base,
      since: null,
      isLeast: false,
      keptEvent: '',
      delivered: {},
      after: 0,
      last: 0,
      ...loss,
    });
  }
  return { store, entries: entriesOf({ store }, 'database_updated.v0').map(({ after }) => after?.lost_commits) };
}

const MERGED: [what: string, reports: Parameters<typeof told>, entries: number[], known: object][] = [
  [
    'the same from all is one entry',
    [
      [{ after: 100, last: 103, since: 5_000 }, 100],
      [{ after: 100, last: 103, since: 5_000 }, 101],
    ],
    [3],
    { after: 100, commits: 3, since: '1970-01-01T00:00:05.000Z' },
  ],
  [
    'one that knows of more adds an entry with more',
    [
      [{ after: 100, last: 103, since: 5_000 }, 100],
      [{ after: 100, last: 105, since: 5_000 }, 120],
    ],
    [3, 5],
    { after: 100, commits: 5 },
  ],
  [
    'one that knows of less adds nothing',
    [
      [{ after: 100, last: 105, since: 5_000 }, 100],
      [{ after: 100, last: 103, since: 5_000 }, 101],
    ],
    [5],
    { after: 100, commits: 5 },
  ],
  [
    'a later loss is another one',
    [
      [{ after: 100, last: 103, since: 5_000 }, 100],
      [{ after: 104, last: 108, since: 9_000 }, 104],
    ],
    [3, 4],
    { after: 104, commits: 4, since: '1970-01-01T00:00:09.000Z' },
  ],
  [
    'one that does not remember where the loss begins adds nothing to one that does',
    [
      [{ after: 100, last: 120, since: 5_000 }, 100],
      [{ after: 114, last: 118, since: 6_000, isLeast: true }, 101],
    ],
    [20],
    { after: 100, commits: 20, isLeast: false, since: '1970-01-01T00:00:05.000Z' },
  ],
  [
    'one that remembers where it begins corrects one that does not',
    [
      [{ after: 114, last: 118, since: 6_000, isLeast: true }, 101],
      [{ after: 100, last: 120, since: 5_000 }, 101],
    ],
    [4, 20],
    { after: 100, commits: 20, isLeast: false, since: '1970-01-01T00:00:05.000Z' },
  ],
];

it.each(MERGED)('reports of lost commits: %s', async (_, reports, entries, known) => {
  const said = await told(...reports);
  expect(said.entries).toEqual(entries);
  expect(lostCommits(said.store.database)).toMatchObject(known);
});
