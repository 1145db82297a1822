import { randomUUID } from 'node:crypto';
import { connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { openForChanges } from '../../../../src/gateway/store/open-gateway-store.ts';
import { PostgresConnection } from '../../../../src/gateway/store/shared/postgres-connection.ts';
import type { SharedWrites } from '../../../../src/gateway/store/shared/shared-writes.ts';
import { DatabaseAway } from '../../../../src/gateway/store/sql/database-problems.ts';
import type { Store } from '../../../../src/gateway/store/store.ts';
import { closeOnce } from '../../../support/close-once.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { serving } from '../../../support/loopback.ts';
import { NO_POSTGRES, PostgresServer } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { recordingLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { gate, until } from '../../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
let server: PostgresServer;

beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());

const at = (name: string, address = server.address) => server.url(address).replace(/postgres$/, name);

/** An empty database for one test; others have their own. */
async function newDatabase(): Promise<string> {
  const name = `t_${randomUUID().replaceAll('-', '')}`;
  await server.query(`CREATE DATABASE ${name}`);
  return name;
}

interface Serving {
  store: Store;
  shared: SharedWrites;
  /** Why it had to end. */
  removed: (string | null)[];
  /** Messages of its log. */
  said: () => unknown[];
  close: () => Promise<void>;
}

/** A gateway's store on the shared database, which serves it. */
async function serve(
  databaseUrl: string,
  { dataDir = temporaryFolder(), address = '192.0.2.1:443', alone = false } = {},
): Promise<Serving> {
  const { log, lines } = recordingLog();
  const opened = await openForChanges({ dataDir, encryptionKey: KEY, databaseUrl }, { older: 'upgrade', log });
  if (opened.shared === null) throw new Error('it has no shared database');
  const close = closeOnce(() => opened.close());
  const removed: (string | null)[] = [];
  const events = { onRemoved: (reason: string | null) => void removed.push(reason) };
  await opened.shared.serve({ address, alone, build: '1' }, events, 100);
  return { store: opened.store, shared: opened.shared, removed, said: () => lines.map(({ msg }) => msg), close };
}

const add = ({ store }: Pick<Serving, 'store'>, id: string) =>
  store.database.write(() => store.botUsers.insert({ id, created_at: store.now(), name: id, active: true }));

const botsOf = ({ store }: Pick<Serving, 'store'>) => store.botUsers.where('id > ?', ['']).map(({ id }) => id);

/** Whether a change is made; false when the shared database cannot be used. */
const changes = (gateway: Pick<Serving, 'store'>, id: string) =>
  add(gateway, id).then(
    () => true,
    (error: unknown) => {
      if (error instanceof DatabaseAway) return false;
      throw error;
    },
  );

const AWAY = 'shared database does not answer: existing accounts keep working, changes are rejected';
const ANSWERS = 'shared database answers again';

const CANNOT_BE_WRITTEN = [
  ['a standby that is behind', async (name: string) => at(name, (await server.standby()).address)],
  [
    'a server that is read-only',
    async (name: string) => {
      await server.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
      return at(name);
    },
  ],
] as const;

it.each(CANNOT_BE_WRITTEN)('%s ends no gateway, and nothing of it is applied', unless(NO_POSTGRES), async (_, lead) => {
  const name = await newDatabase();
  const proxy = await FlakyProxy.start(server.address);
  onTestFinished(() => proxy.close());
  const dataDir = temporaryFolder();
  let gateway = await serve(at(name, proxy.address), { dataDir });
  const { host } = new URL(await lead(name));
  if (host !== server.address) await until(() => changes(gateway, 'bot_1'), 'a change that the standby lacks');
  const before = botsOf(gateway);

  proxy.divert(() => host);
  const isAway = () => /standby|read-only/.test(gateway.store.database.away ?? '');
  await until(isAway, 'what it is', { everyMs: 20 });
  expect(gateway.said()).toContain(AWAY);
  expect([await changes(gateway, 'bot_2'), gateway.removed, botsOf(gateway)]).toEqual([false, [], before]);

  await gateway.close();
  gateway = await serve(at(name, proxy.address), { dataDir });
  await expect(gateway.shared.refresh()).rejects.toThrow(/standby|read-only/);
  expect([gateway.removed, botsOf(gateway)]).toEqual([[], before]);
  await expect(serve(at(name, proxy.address))).rejects.toThrow(/(standby|read-only).* the first start needs it/);

  if (host === server.address) await server.query(`ALTER DATABASE ${name} RESET default_transaction_read_only`);
  proxy.divert(() => server.address);
  await until(() => changes(gateway, 'bot_3'), 'changes', { everyMs: 50 });
  expect(gateway.said()).toContain(ANSWERS);
  expect(gateway.store.database.away).toBeNull();
  expect([gateway.removed, botsOf(gateway)]).toEqual([[], [...before, 'bot_3']]);
});

it(
  'a table that somebody has locked keeps no gateway from starting, and few statements wait at the server',
  unless(NO_POSTGRES),
  async () => {
    const name = await newDatabase();
    const dataDir = temporaryFolder();
    await (await serve(at(name), { dataDir })).close();
    const held = new PostgresConnection(at(name));
    onTestFinished(() => held.close());
    const [begun, released] = [gate(), gate()];
    const holds = held.transaction(async (ask) => {
      await ask("SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL application_name = 'holder'");
      await ask('LOCK TABLE device_agent.rows, device_agent.nodes, device_agent.cluster IN ACCESS EXCLUSIVE MODE');
      begun.open();
      await released.opened;
    });
    await begun.opened;
    const gateway = await serve(at(name), { dataDir });
    for (let count = 0; count < 3; count += 1) {
      expect(await changes(gateway, `bot_${count}`)).toBe(false);
      const waiting = `SELECT FROM pg_stat_activity WHERE datname = '${name}' AND application_name <> 'holder'`;
      expect((await server.query(waiting)).length).toBeLessThan(2);
    }
    expect(gateway.removed).toEqual([]);
    released.open();
    await holds;
    await until(() => changes(gateway, 'bot_3'), 'changes', { everyMs: 50 });
    expect([gateway.removed, botsOf(gateway)]).toEqual([[], ['bot_3']]);
  },
);

it('what an administrator sets for the role ends no gateway', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const gateway = await serve(at(name));
  const settings = [
    "statement_timeout = '20ms'",
    "lock_timeout = '1ms'",
    "default_transaction_isolation = 'serializable'",
  ];
  for (const setting of settings) await server.query(`ALTER DATABASE ${name} SET ${setting}`);
  const other = await serve(at(name), { address: '192.0.2.2:443' });
  const end = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`;
  await server.query(end);
  await Promise.all(
    [gateway, other].map(async (each, at) => {
      for (let count = 0; count < 10; count += 1)
        await until(() => changes(each, `bot_${at}_${count}`), 'a change', { everyMs: 20 });
    }),
  );
  expect([gateway.removed, other.removed]).toEqual([[], []]);
  await gateway.shared.refresh();
  expect(botsOf(gateway).length).toBe(20);
});

it('privileges that are taken away make changes wait, and end no gateway', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const dataDir = temporaryFolder();
  await server.query(`CREATE ROLE ${name} LOGIN; GRANT CREATE ON DATABASE ${name} TO ${name}`);
  const url = at(name).replace('gateway@', `${name}@`);
  let gateway = await serve(url, { dataDir });
  const privileges = 'ALL ON ALL TABLES IN SCHEMA device_agent';
  await server.query(`REVOKE ${privileges} FROM ${name}`, name);
  await until(() => gateway.said().includes(AWAY), 'the line in the log', { everyMs: 20 });
  expect(await changes(gateway, 'bot_1')).toBe(false);
  await gateway.close();
  gateway = await serve(url, { dataDir });
  expect(await changes(gateway, 'bot_2')).toBe(false);
  await server.query(`GRANT ${privileges} TO ${name}`, name);
  await until(() => changes(gateway, 'bot_3'), 'changes', { everyMs: 50 });
  expect([gateway.removed, botsOf(gateway)]).toEqual([[], ['bot_3']]);
});

it('a gateway that falls silent in a transaction locks nothing for long', {
  timeout: 60_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const name = await newDatabase();
  const gateway = await serve(at(name));
  const proxy = await FlakyProxy.start(server.address);
  onTestFinished(() => proxy.close());
  const silent = new PostgresConnection(at(name, proxy.address));
  onTestFinished(() => silent.close());
  const locked = silent.transaction(async (ask) => {
    await ask('SELECT FROM device_agent.cluster FOR UPDATE');
    proxy.silence();
    await ask('SELECT 1');
  });
  await expect(locked).rejects.toThrow(DatabaseAway);
  const from = performance.now();
  await until(() => changes(gateway, 'bot_1'), 'changes', { everyMs: 50 });
  expect(performance.now() - from).toBeLessThan(15_000);
});

/** @returns the address of a proxy that cuts its first connection at a message of the client: before the server has it, or after */
async function cutAt(message: number, when: 'before' | 'after'): Promise<string> {
  let seen = 0;
  const proxy = createServer((client) => {
    const [host, port] = server.address.split(':');
    const upstream = connect(Number(port), host);
    const end = (from: Socket, to: Socket) => from.on('error', () => {}).on('close', () => to.destroy());
    end(client, upstream);
    end(upstream, client);
    client.on('data', (chunk) => {
      seen += 1;
      if (seen !== message) upstream.write(chunk);
      else if (when === 'before') upstream.destroy();
      else upstream.end(chunk, () => client.resetAndDestroy());
    });
    upstream.pipe(client);
  });
  return `127.0.0.1:${await serving(proxy)}`;
}

it('a connection that breaks at any message ends no gateway, and loses no change', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const answered: string[] = [];
  const gateways = Array.from({ length: 14 }, async (_, index) => {
    const options = { dataDir: temporaryFolder(), address: `192.0.2.${index}:443` };
    await (await serve(at(name), options)).close();
    const proxy = await cutAt(3 + index, index % 2 === 0 ? 'before' : 'after');
    const gateway = await serve(at(name, proxy), options);
    for (let count = 0; count < 3; count += 1) {
      const id = `bot_${index}_${count}`;
      if (await changes(gateway, id)) answered.push(id);
    }
    return gateway;
  });
  for (const gateway of await Promise.all(gateways)) {
    await until(
      () =>
        gateway.shared.refresh().then(
          () => true,
          () => false,
        ),
      'the shared database',
    );
    expect(gateway.removed).toEqual([]);
    expect(answered.filter((id) => gateway.store.botUsers.get(id) === null)).toEqual([]);
  }
});

it('an older state that names a gateway of before ends none that serves', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const gateway = await serve(at(name), { alone: true });
  await add(gateway, 'bot_1');
  const tables = ['cluster', 'rows', 'commits'];
  for (const table of tables) await server.query(`CREATE TABLE old_${table} AS TABLE device_agent.${table}`, name);
  await add(gateway, 'bot_2');
  const back = tables.map(
    (table) => `TRUNCATE device_agent.${table}; INSERT INTO device_agent.${table} TABLE old_${table};`,
  );
  await server.query(
    `BEGIN; ${back.join(' ')} TRUNCATE device_agent.nodes;
    INSERT INTO device_agent.nodes VALUES ('old', 'old', true, '1', 1, now() - interval '1 day'); COMMIT`,
    name,
  );
  await until(() => botsOf(gateway).length === 1, 'the older state', { everyMs: 20 });
  await until(() => changes(gateway, 'bot_3'), 'changes', { everyMs: 50 });
  const nodes = await gateway.shared.postgres.nodes();
  expect([gateway.removed, nodes.map(({ address }) => address)]).toEqual([[], ['192.0.2.1:443']]);
});

it(
  'a gateway that starts without PostgreSQL, in the place of one that is silent, waits',
  unless(NO_POSTGRES),
  async () => {
    const name = await newDatabase();
    const proxy = await FlakyProxy.start(server.address);
    onTestFinished(() => proxy.close());
    const dataDir = temporaryFolder();
    await (await serve(at(name, proxy.address), { dataDir, alone: true })).close();
    await proxy.refuse();
    const gateway = await serve(at(name, proxy.address), { dataDir, alone: true });
    await server.query(
      `INSERT INTO device_agent.nodes VALUES ('other', 'other', true, '1', 1, now() - interval '1 minute')`,
      name,
    );
    await proxy.listen();
    await until(() => /other.*serves this shared database/.test(gateway.store.database.away ?? ''), 'the reason');
    expect([await changes(gateway, 'bot_1'), gateway.removed]).toEqual([false, []]);
    // It is there again.
    await server.query('UPDATE device_agent.nodes SET renewed = now()', name);
    await until(() => gateway.removed.length > 0, 'its end', { everyMs: 20 });
  },
);
