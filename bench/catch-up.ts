import { setTimeout as delay } from 'node:timers/promises';
import { FlakyProxy } from '../test/support/flaky-proxy.ts';
import { freePorts } from '../test/support/free-ports.ts';
import { PostgresServer } from '../test/support/postgres-server.ts';
import { section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { type Child, startScript } from './support/process.ts';

/** Rows that a gateway lacks, and bytes per second of its link to PostgreSQL; 0: as fast as this machine. */
const ROWS = Number(process.env.CATCH_UP_ROWS ?? 60_000);
const RATE = Number(process.env.CATCH_UP_RATE ?? 0);
const LOOK_MS = 200;

interface State {
  mib: number;
  maxDelayMs: number;
}

/** A gateway that was cut off while others changed many rows, and one that is killed half-way. */
export async function benchCatchUp(): Promise<void> {
  const database = await PostgresServer.start();
  const link = await FlakyProxy.start(database.address);
  if (RATE > 0) link.throttle(RATE);
  const [dataDir, { first: httpsPort }] = [temporaryFolder(), await freePorts(1)];
  const start = () => startGateway(dataDir, httpsPort, database.url(link.address));
  const gateway = await start();
  await link.refuse();
  const before = await stateOf(gateway);
  await commitRows(database, ROWS);
  await link.listen();
  const caughtUp = await watched(gateway, database, link);
  await commitRows(database, ROWS);
  const half = link.received + caughtUp.bytes / 2;
  while (link.received < half) await delay(LOOK_MS);
  gateway.process.kill('SIGKILL');
  const from = link.received;
  const begun = performance.now();
  const again = await start();
  const [seconds, bytes] = [(performance.now() - begun) / 1000, link.received - from];
  await again.stop();
  await link.close();
  await database.end();
  const text = (value: { seconds: number; bytes: number }) => [
    `${value.seconds.toFixed(1)} s`,
    `${(value.bytes / 1e6).toFixed(1)} MB`,
  ];
  section(`${ROWS} rows that a gateway lacks, ${RATE === 0 ? 'no limit' : `${RATE / 1000} kB/s`}`, [
    [
      'caught up after',
      ...text(caughtUp),
      `longest delay of the event loop ${Math.round(caughtUp.maxDelayMs)} ms`,
      `memory ${before.mib} MiB, at most ${caughtUp.mib} MiB`,
    ],
    ['killed half-way, serves again after', ...text({ seconds, bytes }), '', ''],
  ]);
}

function startGateway(dataDir: string, httpsPort: number, databaseUrl: string): Promise<Child<unknown>> {
  const encryptionKey = Buffer.alloc(32, 7).toString('base64');
  const options = { databaseUrl, encryptionKey, httpsPort, nodeAddress: `127.0.0.1:${httpsPort}` };
  return startScript('gateway', [dataDir, '127.0.0.1', JSON.stringify(options)]);
}

/** Follows a gateway until it has everything. */
async function watched(gateway: Child<unknown>, database: PostgresServer, link: FlakyProxy) {
  const [begun, from] = [performance.now(), link.received];
  let [mib, maxDelayMs, isBehind] = [0, 0, true];
  while (isBehind) {
    await delay(LOOK_MS);
    const state = await stateOf(gateway);
    [mib, maxDelayMs] = [Math.max(mib, state.mib), Math.max(maxDelayMs, state.maxDelayMs)];
    const behind = 'SELECT FROM device_agent.nodes WHERE applied < (SELECT version FROM device_agent.cluster)';
    isBehind = (await database.query(behind)).length > 0;
  }
  return { seconds: (performance.now() - begun) / 1000, bytes: link.received - from, mib, maxDelayMs };
}

/** Changes so many rows in one commit, as a gateway with as many bots does. */
async function commitRows(database: PostgresServer, count: number): Promise<void> {
  await database.query(
    `WITH next AS (UPDATE device_agent.cluster SET version = version + 1 RETURNING version),
    bots AS (
      INSERT INTO device_agent.rows
      SELECT 'bot_users', jsonb_build_array('bot_' || md5(n::text))::text, jsonb_build_object(
        'id', 'bot_' || md5(n::text), 'created_at', '2026-01-01T00:00:00Z', 'name', md5(random()::text), 'active', 1
      ), version FROM next, generate_series(1, ${count}) AS n
      ON CONFLICT (tbl, key) DO UPDATE SET row = excluded.row, version = excluded.version
    )
    INSERT INTO device_agent.commits SELECT version, gen_random_uuid()::text, clock_timestamp() FROM next`,
  );
}

async function stateOf(gateway: Child<unknown>): Promise<State> {
  const line = gateway.nextLine();
  gateway.process.kill('SIGUSR2');
  return JSON.parse(await line) as State;
}
