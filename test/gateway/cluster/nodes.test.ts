import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { ClusterProcesses } from '../../support/cluster-processes.ts';
import { NO_POSTGRES } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { until } from '../../support/until.ts';

const NAME = 'camera.localhost';
/** How long PostgreSQL is away. */
const OUTAGE_S = Number(process.env.OUTAGE_S ?? 1);

it('three gateways serve a device: one is killed, PostgreSQL is away, one is emptied and started again', {
  timeout: 240_000 + OUTAGE_S * 1000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(3);
  const { database, gateways } = cluster;
  expect(await cluster.nodes()).toMatchObject(Array(3).fill({ state: 'serving', sessions: 0, endpoints: 0 }));
  const doctor = (await cluster.command('doctor', '--json')).stdout;
  for (const { httpsPort } of gateways) expect(doctor).toContain(`the gateway 127.0.0.1:${httpsPort} can be reached`);
  const columns = 'address, alone, build, applied, renewed';
  await database.query(
    `INSERT INTO device_agent.nodes (id, ${columns}) SELECT 'lost', ${columns} FROM device_agent.nodes LIMIT 1`,
  );
  expect((await cluster.command('doctor', '--json')).stdout).toContain('does not prove to be the gateway lost');
  await database.query("DELETE FROM device_agent.nodes WHERE id = 'lost'");

  await cluster.startDevice(NAME);
  const clients = cluster.clients();
  const serving = async () => (await cluster.serving())[0];
  const served = async (but?: number) => {
    const asked = clients.filter((_, at) => at !== but).map((client) => client.get(NAME).catch(() => null));
    return (await Promise.all(asked)).every((body) => body === 'seen');
  };
  await until(() => served(), 'the device by all gateways', { everyMs: 100 });

  await until(async () => (await serving()) !== undefined, 'the session is listed', { everyMs: 100 });
  const killed = Number(await serving());
  await gateways[killed]?.kill();
  await until(() => served(killed), 'the device by the gateways that are left', { everyMs: 50 });
  await gateways[killed]?.restart();
  await until(() => served(), 'the device by all gateways again', { everyMs: 100 });

  await database.kill();
  for (const end = performance.now() + OUTAGE_S * 1000; performance.now() < end; await delay(100))
    expect(await served(), 'nobody notices that PostgreSQL is away').toBe(true);
  await database.restart();
  await until(async () => (await cluster.command('doctor', '--json')).stdout.includes('is the same'), 'equal copies');
  expect(await served()).toBe(true);

  await until(async () => (await serving()) !== undefined, 'the session is listed', { everyMs: 100 });
  const emptied = Number(await serving());
  const { id = '' } = (await cluster.nodes()).find((node) => cluster.placeOf(node) === emptied) ?? {};
  const { code, stdout, stderr } = await cluster.command('drain', id, '--json');
  expect([code, JSON.parse(stdout || 'null')], stderr).toEqual([0, { drained: id }]);
  expect((await cluster.command('log', '--export')).stdout).toMatch(/"gateway_updated\.v0".*"draining":true/);
  await until(() => served(), 'the device, also by the gateway that is emptied', { everyMs: 50 });
  expect(await serving()).not.toBe(emptied);
  for (let count = 0; count < 8; count++) await cluster.startSdkAgent(cluster.address);
  await gateways[emptied]?.restart();
  await until(() => served(), 'the device by all gateways', { everyMs: 100 });
  expect((await cluster.nodes()).map(({ state }) => state)).toEqual(['serving', 'serving', 'serving']);
  const isBack = async () => (await cluster.serving()).includes(emptied);
  await until(isBack, 'agents at the gateway that is back', { everyMs: 200, withinMs: 60_000 });
});

it('an agent with an SDK alone stays online while the gateway that it connects to is emptied, and is back there afterwards', {
  timeout: 120_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const cluster = await ClusterProcesses.start(2, {}, true);
  /** Of each gateway. */
  const sessions = async () => {
    const nodes = await cluster.nodes();
    return cluster.gateways.map((_, at) => nodes.find((node) => cluster.placeOf(node) === at)?.sessions);
  };
  await cluster.startSdkAgent(cluster.gateways[0]?.sessionAddress);
  await until(async () => (await sessions())[0] === 1, 'the agent at its gateway', { everyMs: 100 });
  await cluster.drain(0);
  // Within the two minutes for which it waits after a few refusals.
  await until(async () => (await sessions())[1] === 1, 'the agent at the other gateway', { everyMs: 100 });
  await cluster.gateways[0]?.replace('SIGTERM');
  await until(async () => (await sessions())[0] === 1, 'the agent at its gateway again', { everyMs: 100 });
});
