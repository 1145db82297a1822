import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { openForChanges } from '../../../../src/gateway/store/open-gateway-store.ts';
import { Replica } from '../../../../src/gateway/store/shared/replica.ts';
import type { SharedWrites } from '../../../../src/gateway/store/shared/shared-writes.ts';
import { DatabaseAway, DatabaseUnwritable } from '../../../../src/gateway/store/sql/database-problems.ts';
import type { Store } from '../../../../src/gateway/store/store.ts';
import { issueCredential } from '../../../../src/gateway/store/tokens.ts';
import { closeOnce } from '../../../support/close-once.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { NO_POSTGRES, PostgresServer } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { seeded } from '../../../support/seeded.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { until } from '../../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
let server: PostgresServer;

beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());

interface SharedStore {
  store: Store;
  shared: SharedWrites;
  close: () => Promise<void>;
}

/** A store on the shared database, with a folder of its own. */
async function openAt(databaseUrl: string, dataDir = temporaryFolder()): Promise<SharedStore> {
  const opened = await openForChanges(
    { dataDir, encryptionKey: KEY, databaseUrl },
    { older: 'upgrade', log: silentLog },
  );
  if (opened.shared === null) throw new Error('it has no shared database');
  const close = closeOnce(() => opened.close());
  return { ...opened, shared: opened.shared, close };
}

/** An empty database for one test; others have their own. */
async function newDatabase(): Promise<string> {
  const name = `t_${randomUUID().replaceAll('-', '')}`;
  await server.query(`CREATE DATABASE ${name}`);
  return name;
}

const at = (name: string, address?: string) => server.url(address).replace(/postgres$/, name);

/** What every store has, when each has taken over all changes. */
async function contentOf(stores: readonly SharedStore[]): Promise<string[]> {
  const contents = [];
  for (const { shared } of stores) {
    await until(
      async () =>
        shared.refresh().then(
          () => true,
          () => false,
        ),
      'the shared database',
    );
    contents.push(shared.digest());
  }
  return contents;
}

/** One change of a random kind, as the management API makes them. */
function change({ store }: SharedStore, random: () => number, name: string): Promise<unknown> {
  const { database, botUsers, credentials, ids, now } = store;
  const some = <Row>(rows: Row[]) => rows[Math.floor(random() * rows.length)];
  const kind = random();
  return database.write(() => {
    const bot = some(botUsers.where("name <> 'kept'", []));
    if (kind < 0.5 || !bot) return botUsers.insert({ id: ids.next('bot'), created_at: now(), name, active: true });
    if (kind < 0.7) return issueCredential(store, { acl: [`bind:${name}.example`], owner_id: bot.id });
    if (kind < 0.85) return botUsers.update({ ...bot, name, active: !bot.active });
    // Takes its authtokens with it.
    if (kind < 0.95) return botUsers.delete(bot.id);
    const credential = some(credentials.page(null, 20));
    return credential && credentials.delete(credential.id);
  });
}

/** A change of a command, in another process on the gateway's copy. */
async function command(url: string, folder: string, random: () => number, name: string): Promise<void> {
  const beside = await openAt(url, folder);
  await change(beside, random, name);
  await beside.close();
}

const FAULTS = ['none', 'cut', 'refuse', 'silence', 'restart', 'command', 'command'] as const;
/** More than a few begin with a random one. */
const HISTORIES = Number(process.env.HISTORIES ?? 6);
const FIRST = process.env.HISTORIES === undefined ? 1 : Math.floor(Math.random() * 1_000_000);

it.each(Array.from({ length: HISTORIES }, (_, count) => FIRST + count))(
  'history %i: three gateways change what they share while connections break, and agree; no answered change is lost',
  unless(NO_POSTGRES),
  async (seed) => {
    const random = seeded(seed);
    const name = await newDatabase();
    const proxies = await Promise.all([1, 2, 3].map(() => FlakyProxy.start(server.address)));
    onTestFinished(() => Promise.all(proxies.map((proxy) => proxy.close())).then(() => {}));
    const stores: SharedStore[] = [];
    const folders = proxies.map(() => temporaryFolder());
    for (const [node, { address }] of proxies.entries()) stores.push(await openAt(at(name, address), folders[node]));
    const answered = new Set<string>();
    const unknown = new Set<string>();
    for (let round = 0; round < 12; round++) {
      const writes = stores.flatMap((each, node) =>
        Array.from({ length: 4 }, async (_, count) => {
          const bot = `${round}-${node}-${count}`;
          const { store } = each;
          try {
            if (count > 0) return await change(each, random, bot);
            // Never changed again: must be there at the end.
            await store.database.write(() =>
              store.botUsers.insert({ id: `bot_0${bot}`, created_at: store.now(), name: 'kept', active: true }),
            );
            answered.add(`bot_0${bot}`);
          } catch (error) {
            if (!(error instanceof DatabaseAway)) throw error;
            if (count === 0) unknown.add(`bot_0${bot}`);
          }
        }),
      );
      const node = Math.floor(random() * proxies.length);
      const proxy = proxies[node];
      const fault = FAULTS[Math.floor(random() * FAULTS.length)];
      if (fault === 'cut') proxy?.cut();
      if (fault === 'refuse') await proxy?.refuse();
      if (fault === 'silence') proxy?.silence();
      if (fault === 'command') writes.push(command(at(name), folders[node] ?? '', random, `${round}-command`));
      if (fault === 'restart') await server.restart();
      if (fault === 'silence') {
        await Promise.race([Promise.all(writes), delay(300)]);
        proxy?.speak();
        proxy?.cut();
      }
      await Promise.all(writes);
      if (fault === 'refuse') await proxy?.listen();
    }
    const [first, ...others] = await contentOf(stores);
    expect(others).toEqual([first, first]);
    const kept = new Set(stores[0]?.store.botUsers.where("name = 'kept'", []).map(({ id }) => id));
    expect([...answered].filter((id) => !kept.has(id))).toEqual([]);
    expect([...kept].filter((id) => !answered.has(id) && !unknown.has(id))).toEqual([]);
    // A gateway without a copy gets the same.
    const fresh = await openAt(at(name));
    expect(fresh.shared.digest()).toBe(first);
    for (const { store } of [...stores, fresh]) expect(store.database.problems()).toEqual([]);
  },
);

it('a change that the copy has no room for was made, and is there later', unless(NO_POSTGRES), async () => {
  const { store, shared } = await openAt(at(await newDatabase()));
  const add = (id: string) =>
    store.database.write(() => store.botUsers.insert({ id, created_at: store.now(), name: id, active: true }));
  const full = vi.spyOn(Replica.prototype, 'apply').mockImplementation(() => {
    throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  });
  await add('bot_1');
  // It would be one that does not know the first.
  await expect(add('bot_2')).rejects.toThrow(DatabaseUnwritable);
  expect(store.botUsers.get('bot_1')).toBeNull();
  full.mockRestore();
  await shared.refresh();
  expect(store.botUsers.where('id > ?', ['']).map(({ id }) => id)).toEqual(['bot_1']);
  await add('bot_2');
});

it('a shared database that was put back to an older state is followed from there', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const [one, two] = [await openAt(at(name)), await openAt(at(name))];
  const add = ({ store }: SharedStore, id: string) =>
    store.database.write(() => store.botUsers.insert({ id, created_at: store.now(), name: id, active: true }));
  await add(one, 'bot_1');
  const dump = await rowsOf(name);
  await add(two, 'bot_2');
  await contentOf([one, two]);
  await putBack(name, dump);
  await add(one, 'bot_3').catch(() => {});
  // As many commits as before: the second one notices that they are others.
  await add(two, 'bot_4');
  const [first, second] = await contentOf([one, two]);
  expect(second).toBe(first);
  expect(two.store.botUsers.where('id > ?', ['']).map(({ id }) => id)).toEqual(['bot_1', 'bot_3', 'bot_4']);
});

it(
  'a gateway goes on when the shared database is put back to a state before it began to serve',
  unless(NO_POSTGRES),
  async () => {
    const name = await newDatabase();
    const proxy = await FlakyProxy.start(server.address);
    onTestFinished(() => proxy.close());
    const { store, shared } = await openAt(at(name, proxy.address));
    const before = await rowsOf(name);
    await store.database.write(() => issueCredential(store, { acl: [] }));
    const removed: (string | null)[] = [];
    const self = { address: '192.0.2.1:443', alone: false, build: '1' };
    await shared.serve(self, { onRemoved: (reason) => void removed.push(reason) }, 100);
    await proxy.refuse();
    await putBack(name, before);
    await sql(name, 'DELETE FROM device_agent.nodes');
    await proxy.listen();
    const entries = () => sql(name, 'SELECT FROM device_agent.nodes');
    await until(async () => (await entries()).length === 1, 'its entry', { everyMs: 50 });
    expect([removed, store.credentials.page(null, 9)]).toEqual([[], []]);
  },
);

it('keeps columns and tables of a newer version that this one does not know', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const one = await openAt(at(name));
  await one.store.database.write(() =>
    one.store.botUsers.insert({ id: 'bot_1', created_at: one.store.now(), name: 'a', active: true }),
  );
  const all = 'device_agent.rows';
  await sql(name, `UPDATE ${all} SET row = row || '{"colour": "red"}' WHERE tbl = 'bot_users'`);
  await sql(name, `INSERT INTO ${all} VALUES ('moons', '["io"]', '{"name": "io"}', 1)`);
  const two = await openAt(at(name));
  const [row] = two.store.botUsers.page(null, 1);
  if (!row) throw new Error('no bot user');
  await two.store.database.write(() => two.store.botUsers.update({ ...row, name: 'b' }));
  expect(
    await sql(name, `SELECT row->>'name' AS name, row->>'colour' AS colour FROM ${all} WHERE tbl = 'bot_users'`),
  ).toEqual([{ name: 'b', colour: 'red' }]);
  expect(await sql(name, `SELECT count(*)::int FROM ${all} WHERE tbl = 'moons'`)).toEqual([{ count: 1 }]);
});

it(
  'one gateway serves a shared database at a time; it may be removed for another one',
  unless(NO_POSTGRES),
  async () => {
    const url = at(await newDatabase());
    const [one, two] = [await openAt(url), await openAt(url)];
    const removed: string[] = [];
    const serve = ({ shared }: SharedStore, address: string) =>
      shared.serve({ address, alone: true, build: '1' }, { onRemoved: () => void removed.push(address) }, 2_000);
    await serve(one, 'one');
    await expect(serve(two, 'two')).rejects.toThrow(/the gateway one, heard of \d+ s ago, serves this shared database/);
    const [node] = await two.shared.postgres.nodes();
    expect(node).toMatchObject({ address: 'one', build: '1' });
    await two.shared.postgres.leave(node?.id ?? '');
    await serve(two, 'two');
    await until(() => removed.length > 0, 'the first one to notice');
    expect(removed[0]).toBe('one');
    await two.close();
    expect(await one.shared.postgres.nodes()).toEqual([]);
  },
);

it('gateways that serve together have addresses and data folders of their own', unless(NO_POSTGRES), async () => {
  const url = at(await newDatabase());
  const [one, two] = [await openAt(url), await openAt(url)];
  let isRemoved = false;
  const onRemoved = () => {
    isRemoved = true;
  };
  const self = { address: '192.0.2.1:443', alone: false, build: '1' };
  await one.shared.serve(self, { onRemoved }, 100);
  await expect(two.shared.serve(self, { onRemoved }, 100)).rejects.toThrow(
    /set GATEWAY_NODE_ADDRESS to this gateway's own/,
  );
  // A copy of the first one's machine starts elsewhere.
  await two.shared.postgres.enter({ ...self, id: one.shared.node, address: '192.0.2.2:443', applied: 1 });
  await until(() => isRemoved, 'the first one to notice');
});

it(
  'a shared database that was moved away is used by nobody, until the same gateway moves there again',
  unless(NO_POSTGRES),
  async () => {
    const url = at(await newDatabase());
    const dataDir = temporaryFolder();
    const openFor = (moves: 'in' | 'out', folder = dataDir) =>
      openForChanges(
        { dataDir: folder, encryptionKey: KEY, databaseUrl: url },
        { older: 'upgrade', moves, log: silentLog },
      );
    const [first, other] = [await openAt(url, dataDir), await openAt(url)];
    const self = { address: 'one', alone: true, build: '1' };
    await other.shared.serve(self, { onRemoved: () => {} }, 2_000);
    expect(await first.shared.postgres.end(first.shared.node)).toMatchObject({ address: 'one' });
    await other.close();
    // As if it had been killed.
    await first.shared.postgres.enter({ ...self, id: first.shared.node, applied: 1 });
    await first.close();

    // It was interrupted the first time.
    for (let times = 0; times < 2; times++) {
      const { shared, close } = await openFor('out');
      expect(await shared?.postgres.end(shared.node)).toBeNull();
      await expect(shared?.serve(self, { onRemoved: () => {} }, 2_000)).rejects.toThrow(/is not used any more/);
      const head = await shared?.postgres.head();
      if (head) expect(await shared?.postgres.commit(head, randomUUID(), [])).toBeNull();
      if (times === 1) shared?.detach();
      await close();
    }
    await expect(openAt(url)).rejects.toThrow(/is not used any more: .* Start that one without GATEWAY_DATABASE_URL/);

    const stranger = temporaryFolder();
    for (const folder of [dataDir, stranger]) {
      const own = await openForChanges({ dataDir: folder, encryptionKey: KEY }, { older: 'upgrade', log: silentLog });
      await own.store.database.write(() => issueCredential(own.store, { acl: [] }));
      await own.close();
    }
    await expect(openFor('in', stranger)).rejects.toThrow(/is not used any more/);
    await (await openFor('in')).close();
    const moved = await openAt(url);
    expect(moved.store.credentials.page(null, 9)).toHaveLength(1);
  },
);

it('a gateway that starts without PostgreSQL learns later why it cannot serve', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const proxy = await FlakyProxy.start(server.address);
  onTestFinished(() => proxy.close());
  const [one, two] = [await openAt(at(name)), await openAt(at(name, proxy.address))];
  const self = { address: '192.0.2.1:443', alone: false, build: '1' };
  await one.shared.serve(self, { onRemoved: () => {} }, 100);
  await proxy.refuse();
  const reasons: (string | null)[] = [];
  await two.shared.serve(self, { onRemoved: (reason) => void reasons.push(reason) }, 100);
  await proxy.listen();
  await until(() => reasons.length > 0, 'the reason');
  expect(reasons[0]).toContain("set GATEWAY_NODE_ADDRESS to this gateway's own");
});

it('refuses what would lose or mix data', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const dataDir = temporaryFolder();
  const open = async (location: object, moves?: 'in') => {
    const options = { older: 'upgrade', log: silentLog, ...(moves && { moves }) } as const;
    await (await openForChanges({ dataDir, encryptionKey: KEY, ...location }, options)).close();
  };
  const own = await openForChanges({ dataDir, encryptionKey: KEY }, { older: 'upgrade', log: silentLog });
  await own.store.database.write(() => issueCredential(own.store, { acl: [] }));
  await own.close();
  await expect(open({ databaseUrl: at(name) })).rejects.toThrow(/of its own, and the shared one is empty/);
  await open({ databaseUrl: at(name) }, 'in');
  await open({ databaseUrl: at(name) });
  await expect(open({})).rejects.toThrow(/set GATEWAY_DATABASE_URL, or run ".* gateway migrate --to sqlite"/);
  await expect(open({ databaseUrl: at(await newDatabase()) })).rejects.toThrow(/is empty, and was not before/);
  const another = await newDatabase();
  await openAt(at(another));
  await expect(open({ databaseUrl: at(another) })).rejects.toThrow(/another shared database than before/);
  const otherKey = { dataDir: temporaryFolder(), encryptionKey: Buffer.alloc(32).toString('base64') };
  await expect(open({ ...otherKey, databaseUrl: at(name) })).rejects.toThrow(/GATEWAY_ENCRYPTION_KEY is not the key/);
  await expect(open({ dataDir: join(dataDir, 'new'), databaseUrl: 'postgres://u@127.0.0.1:1/x' })).rejects.toThrow(
    /cannot be reached .* the first start needs it/,
  );
});

async function sql<Row>(name: string, text: string): Promise<Row[]> {
  return server.query<Row>(text, name);
}

const TABLES = ['cluster', 'rows', 'commits'];

async function rowsOf(name: string): Promise<string[]> {
  const dump = TABLES.map(async (table) => {
    const [row] = await sql<{ all: string }>(name, `SELECT json_agg(t)::text AS all FROM device_agent.${table} t`);
    return row?.all ?? '[]';
  });
  return Promise.all(dump);
}

async function putBack(name: string, dump: readonly string[]): Promise<void> {
  for (const [place, table] of TABLES.entries()) {
    const full = `device_agent.${table}`;
    const values = `'${dump[place]?.replaceAll("'", "''")}'`;
    await sql(
      name,
      `TRUNCATE ${full}; INSERT INTO ${full} SELECT * FROM json_populate_recordset(NULL::${full}, ${values})`,
    );
  }
}
