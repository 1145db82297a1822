import { randomUUID } from 'node:crypto';
import { cpSync } from 'node:fs';
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { openForChanges, openGatewayDatabase } from '../../../../src/gateway/store/open-gateway-store.ts';
import { IncomingRows } from '../../../../src/gateway/store/shared/incoming-rows.ts';
import type { SharedWrites } from '../../../../src/gateway/store/shared/shared-writes.ts';
import { DatabaseUnwritable } from '../../../../src/gateway/store/sql/database-problems.ts';
import type { Store } from '../../../../src/gateway/store/store.ts';
import { issueCredential } from '../../../../src/gateway/store/tokens.ts';
import { closeOnce } from '../../../support/close-once.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { NO_POSTGRES, PostgresServer } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { until } from '../../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
/** Bytes per second. */
const SLOW = 150_000;
/** Of a bot's name, and of its row as JSON, at least. */
const NAME_BYTES = 416;
const BOT_BYTES = NAME_BYTES + 160;

let server: PostgresServer;
beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());

interface Gateway {
  store: Store;
  shared: SharedWrites;
  close: () => Promise<void>;
}

async function newDatabase(): Promise<string> {
  const name = `t_${randomUUID().replaceAll('-', '')}`;
  await server.query(`CREATE DATABASE ${name}`);
  return name;
}

/** As the gateway itself opens its database. */
async function start(name: string, address = server.address, dataDir = temporaryFolder()): Promise<Gateway> {
  const opened = await openForChanges(
    { dataDir, encryptionKey: KEY, databaseUrl: server.url(address).replace(/postgres$/, name) },
    { older: 'upgrade', onCopyUnusable: () => {}, log: silentLog },
  );
  if (opened.shared === null) throw new Error('it has no shared database');
  const close = closeOnce(opened.close);
  onTestFinished(close);
  return { store: opened.store, shared: opened.shared, close };
}

/** To PostgreSQL, as fast as this machine until it is throttled. */
async function slowLink(): Promise<FlakyProxy> {
  const link = await FlakyProxy.start(server.address);
  onTestFinished(() => link.close());
  return link;
}

/** What a gateway with many bots commits at once: rows that hardly compress. */
async function commitBots(name: string, first: number, count: number): Promise<void> {
  const text = Array.from({ length: NAME_BYTES / 32 }, (_, at) => `md5(random()::text || n || ${at})`).join(' || ');
  await server.query(
    `WITH next AS (UPDATE device_agent.cluster SET version = version + 1 RETURNING version),
    bots AS (
      INSERT INTO device_agent.rows
      SELECT 'bot_users', jsonb_build_array('bot_' || lpad(n::text, 9, '0'))::text, jsonb_build_object(
        'id', 'bot_' || lpad(n::text, 9, '0'), 'created_at', '2026-01-01T00:00:00Z', 'name', ${text}, 'active', 1
      ), version FROM next, generate_series(${first}, ${first + count - 1}) AS n
    )
    INSERT INTO device_agent.commits SELECT version, gen_random_uuid()::text, clock_timestamp() FROM next`,
    name,
  );
}

const botsOf = ({ store }: Gateway) => Number(store.database.values('SELECT count(*) FROM bot_users', [])?.[0]);

const add = ({ store }: Gateway, id: string) =>
  store.database.write(() => store.botUsers.insert({ id, created_at: store.now(), name: id, active: true }));

let addresses = 0;
const serve = (gateway: Gateway) =>
  gateway.shared.serve(
    { address: `192.0.2.${++addresses}:443`, alone: false, build: '1' },
    { onRemoved: () => {} },
    500,
  );

/** Bytes that come with so many bots, at least. */
const bytesOf = (bots: number) => bots * BOT_BYTES;

it(
  'a gateway catches up over a link on which all changes take longer than an answer may',
  unless(NO_POSTGRES),
  async () => {
    const name = await newDatabase();
    const link = await slowLink();
    const gateway = await start(name, link.address);
    await serve(gateway);
    await link.refuse();
    await commitBots(name, 0, 2_200);
    link.throttle(SLOW);
    await link.listen();
    const [seen, silent] = [new Set<number>(), new Set<number>()];
    const isThere = async () => {
      seen.add(botsOf(gateway));
      const [node] = await server.query<{ silent: string }>(
        'SELECT EXTRACT(EPOCH FROM clock_timestamp() - renewed) AS silent FROM device_agent.nodes',
        name,
      );
      if (link.received > bytesOf(500)) silent.add(Number(node?.silent));
      return botsOf(gateway) === 2_200;
    };
    await until(isThere, 'all changes', { withinMs: 40_000, everyMs: 20 });
    seen.add(botsOf(gateway));
    // Readers see the commit as a whole, and it says meanwhile that it is there.
    expect([...seen]).toEqual([0, 2_200]);
    expect(Math.max(...silent)).toBeLessThan(5);
    expect(link.received).toBeLessThan(2 * bytesOf(2_200));
    await add(gateway, 'bot_after');
  },
);

it('changes wait while a gateway catches up, and are rejected when that takes long', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const link = await slowLink();
  const gateway = await start(name, link.address);
  await serve(gateway);
  link.throttle(SLOW);
  await commitBots(name, 0, 2_200);
  await until(() => link.received > bytesOf(300), 'the first pages', { everyMs: 10 });
  await expect(add(gateway, 'bot_early')).rejects.toThrow(/does not answer \(this gateway is still fetching/);
  expect(gateway.shared.away).toMatch(/still fetching/);
  link.throttle(10 * SLOW);
  await until(() => gateway.shared.away === null, 'all changes', { everyMs: 10 });
  expect([botsOf(gateway), gateway.store.botUsers.get('bot_early')]).toEqual([2_200, null]);
});

it('an authtoken that was revoked is refused before everything else has come', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const [link, one] = [await slowLink(), await start(name)];
  const { store } = one;
  const { row } = await store.database.write(() => issueCredential(store, { acl: [] }));
  const two = await start(name, link.address);
  expect(two.store.credentials.get(row.id)).not.toBeNull();
  link.throttle(SLOW);
  await commitBots(name, 0, 2_200);
  await one.shared.refresh().catch(() => {});
  await until(
    () =>
      one.shared
        .refresh()
        .then(() => true)
        .catch(() => false),
    'the first gateway',
  );
  await store.database.write(() => store.credentials.delete(row.id));
  await serve(two);
  await until(() => two.store.credentials.get(row.id) === null, 'the revocation', { withinMs: 8_000, everyMs: 10 });
  expect(botsOf(two)).toBe(0);
  link.throttle(20 * SLOW);
  await until(() => botsOf(two) === 2_200, 'all changes', { everyMs: 10 });
});

it('a disk that is full meanwhile keeps what has arrived, and goes on', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const gateway = await start(name);
  const keep = vi.spyOn(IncomingRows.prototype, 'keep').mockImplementation(() => {
    throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });
  });
  await commitBots(name, 0, 1_500);
  await serve(gateway);
  await until(() => keep.mock.calls.length > 1, 'two attempts');
  await expect(add(gateway, 'bot_1')).rejects.toThrow(DatabaseUnwritable);
  expect(botsOf(gateway)).toBe(0);
  keep.mockRestore();
  await until(() => botsOf(gateway) === 1_500, 'all changes', { everyMs: 10 });
  await until(
    () =>
      add(gateway, 'bot_1')
        .then(() => true)
        .catch(() => false),
    'changes',
    { everyMs: 50 },
  );
});

it('pages that have arrived when a gateway is killed are not fetched again', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const link = await slowLink();
  const dataDir = temporaryFolder();
  const gateway = await start(name, link.address, dataDir);
  await serve(gateway);
  link.throttle(3 * SLOW);
  await commitBots(name, 0, 3_000);
  await until(() => link.received > bytesOf(2_000), 'two thirds', { everyMs: 10 });
  await link.refuse();
  const killed = temporaryFolder();
  cpSync(dataDir, killed, { recursive: true });
  const direct = await slowLink();
  const again = await start(name, direct.address, killed);
  expect(botsOf(again)).toBe(3_000);
  expect(direct.received).toBeLessThan(bytesOf(2_000));
});

it('a first start that is cut off goes on where it was', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  await (await start(name)).close();
  await commitBots(name, 0, 3_000);
  const link = await slowLink();
  link.throttle(4 * SLOW);
  const dataDir = temporaryFolder();
  const first = start(name, link.address, dataDir);
  first.catch(() => {});
  await until(() => link.received > bytesOf(2_000), 'two thirds', { everyMs: 10 });
  await link.refuse();
  await expect(first).rejects.toThrow(/cannot be reached/);
  const direct = await slowLink();
  const second = await start(name, direct.address, dataDir);
  expect([botsOf(second), second.store.database.problems()]).toEqual([3_000, []]);
  expect(direct.received).toBeLessThan(bytesOf(2_000));
});

it('a start compares the copy without fetching it, and mends what differs', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const dataDir = temporaryFolder();
  const before = await start(name, server.address, dataDir);
  await commitBots(name, 0, 6_000);
  await before.shared.refresh().catch(() => {});
  await before.close();
  await (await start(name, server.address, dataDir)).close();

  const link = await slowLink();
  await (await start(name, link.address, dataDir)).close();
  expect(link.received).toBeLessThan(bytesOf(6_000) / 10);

  const file = openGatewayDatabase({ dataDir, encryptionKey: KEY });
  const { engine } = file.replicaParts();
  engine.exec("UPDATE bot_users SET name = 'other' WHERE id = 'bot_000000007'");
  engine.exec("DELETE FROM bot_users WHERE id = 'bot_000000008'");
  engine.exec("INSERT INTO bot_users (id, created_at, name, active) VALUES ('bot_x', '', 'x', 1)");
  file.close();
  const mending = await slowLink();
  const mended = await start(name, mending.address, dataDir);
  expect(botsOf(mended)).toBe(6_000);
  expect(mended.store.botUsers.get('bot_000000007')?.name).toHaveLength(NAME_BYTES);
  expect(mended.store.botUsers.get('bot_x')).toBeNull();
  expect(mending.received).toBeLessThan(bytesOf(6_000) / 5);
});

it('a commit of many rows is seen as a whole by its gateway and by others', unless(NO_POSTGRES), async () => {
  const name = await newDatabase();
  const [one, two] = [await start(name), await start(name)];
  for (const gateway of [one, two]) await serve(gateway);
  const seen = new Set<number>();
  const looks = setInterval(() => {
    seen.add(botsOf(one)).add(botsOf(two));
  }, 1);
  onTestFinished(() => clearInterval(looks));
  const { store } = one;
  await store.database.write(() => {
    for (let at = 0; at < 2_000; at += 1)
      store.botUsers.insert({ id: `bot_${at}`, created_at: store.now(), name: `${at}`, active: true });
  });
  expect(botsOf(one)).toBe(2_000);
  await until(() => botsOf(two) === 2_000, 'the other gateway', { everyMs: 5 });
  expect([...seen].sort()).toEqual([0, 2_000]);
  await store.database.write(() => void store.database.run('DELETE FROM bot_users'));
  await until(() => botsOf(two) === 0, 'the other gateway', { everyMs: 5 });
  await until(() => two.shared.away === null && one.shared.applied === two.shared.applied, 'the same commit');
  expect(two.shared.digest()).toBe(one.shared.digest());
});
