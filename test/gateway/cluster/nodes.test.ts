import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { openForChanges } from '../../../src/gateway/store/open-gateway-store.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { persistTunnels } from '../../faults/persisted-tunnels.ts';
import { PublicClient } from '../../faults/public-client.ts';
import { AgentProcess, deviceAgent } from '../../support/agent-process.ts';
import { startBalancer } from '../../support/balancer.ts';
import { freePorts } from '../../support/free-ports.ts';
import { GatewayProcess } from '../../support/gateway-process.ts';
import { startHttpService } from '../../support/http-service.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const NAME = 'camera.localhost';
/** How long PostgreSQL is away. */
const OUTAGE_S = Number(process.env.OUTAGE_S ?? 1);
const KEY = Buffer.alloc(32, 7).toString('base64');

it('three gateways serve a device: one is killed, PostgreSQL is away, one is emptied and started again', {
  timeout: 240_000 + OUTAGE_S * 1000,
  ...unless(NO_POSTGRES),
}, async () => {
  const database = await PostgresServer.start();
  onTestFinished(() => database.end());
  const shared = { GATEWAY_DATABASE_URL: database.url(), GATEWAY_ENCRYPTION_KEY: KEY };
  const authtoken = await newAuthtoken(database.url());
  const gateways: GatewayProcess[] = [];
  for (let at = 0; at < 3; at++) {
    const { first } = await freePorts(3);
    const ports = {
      GATEWAY_SESSION_PORT: String(first),
      GATEWAY_HTTPS_PORT: String(first + 1),
      GATEWAY_HTTP_PORT: String(first + 2),
    };
    const env = { ...shared, GATEWAY_NODE_ADDRESS: `127.0.0.1:${first + 1}` };
    gateways.push(await GatewayProcess.start(temporaryFolder(), env, { ports, authtoken }));
  }
  onTestFinished(() => Promise.all(gateways.map((gateway) => gateway.kill())).then(() => {}));
  const [one] = gateways as [GatewayProcess];
  const command = async (...args: string[]) =>
    deviceAgent(['gateway', ...args], one.folder, { ...shared, GATEWAY_NODE_ADDRESS: '127.0.0.1:1' });
  const nodes = async () => JSON.parse((await command('nodes', '--json')).stdout) as Record<string, unknown>[];
  expect(await nodes()).toMatchObject(Array(3).fill({ state: 'serving', sessions: 0, endpoints: 0 }));
  const doctor = (await command('doctor', '--json')).stdout;
  for (const { httpsPort } of gateways) expect(doctor).toContain(`the gateway 127.0.0.1:${httpsPort} can be reached`);

  const balancer = await startBalancer(gateways.map(({ sessionAddress }) => Number(sessionAddress.split(':')[1])));
  onTestFinished(balancer.close);
  const agent = await startAgent(one, { authtoken, address: balancer.address });
  onTestFinished(() => agent.end('SIGKILL').then(() => {}));
  const clients = gateways.map(({ httpsPort, sessionCa }) => new PublicClient(() => ({ httpsPort, sessionCa })));
  onTestFinished(() => {
    for (const client of clients) client.close();
  });
  const serving = async () => (await nodes()).find(({ sessions }) => Number(sessions) > 0);
  const served = async (but?: number) => {
    const asked = clients.filter((_, at) => at !== but).map((client) => client.get(NAME).catch(() => null));
    return (await Promise.all(asked)).every((body) => body === 'seen');
  };
  const placeOf = (node: Record<string, unknown> | undefined) =>
    gateways.findIndex(({ httpsPort }) => node?.address === `127.0.0.1:${httpsPort}`);
  await until(() => served(), 'the device by all gateways', { everyMs: 100 });

  await until(async () => (await serving()) !== undefined, 'the session is listed', { everyMs: 100 });
  const killed = placeOf(await serving());
  await gateways[killed]?.kill();
  await until(() => served(killed), 'the device by the gateways that are left', { everyMs: 50 });
  await gateways[killed]?.restart();
  await until(() => served(), 'the device by all gateways again', { everyMs: 100 });

  await database.kill();
  for (const end = performance.now() + OUTAGE_S * 1000; performance.now() < end; await delay(100))
    expect(await served(), 'nobody notices that PostgreSQL is away').toBe(true);
  await database.restart();
  await until(async () => (await command('doctor', '--json')).stdout.includes('is the same'), 'equal copies');
  expect(await served()).toBe(true);

  await until(async () => (await serving()) !== undefined, 'the session is listed', { everyMs: 100 });
  const emptied = await serving();
  const { code, stdout, stderr } = await command('drain', String(emptied?.id));
  expect([code, stdout.trim()], stderr).toEqual([0, expect.stringContaining('has no sessions left')]);
  await until(() => served(), 'the device, also by the gateway that is emptied', { everyMs: 50 });
  expect(placeOf(await serving())).not.toBe(placeOf(emptied));
  await gateways[placeOf(emptied)]?.restart();
  await until(() => served(), 'the device by all gateways', { everyMs: 100 });
  expect((await nodes()).map(({ state }) => state)).toEqual(['serving', 'serving', 'serving']);
});

async function newAuthtoken(databaseUrl: string): Promise<string> {
  const location = { dataDir: temporaryFolder(), encryptionKey: KEY, databaseUrl };
  const { store, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
  const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
  await close();
  return token;
}

async function startAgent(gateway: GatewayProcess, to: { authtoken: string; address: string }): Promise<AgentProcess> {
  const upstream = await startHttpService((_request, res) => void res.end('seen'));
  onTestFinished(() => upstream.close());
  const folder = temporaryFolder();
  const { port } = new URL(upstream.url);
  persistTunnels(folder, [{ domain: NAME, forwards_to: `localhost:${port}`, url: `https://${NAME}` }]);
  const agent = AgentProcess.start(folder, {
    NGROK_AUTHTOKEN: to.authtoken,
    NGROK_SERVER_ADDR: to.address,
    NGROK_CA_CERT: gateway.caFile,
  });
  await agent.ready();
  return agent;
}
