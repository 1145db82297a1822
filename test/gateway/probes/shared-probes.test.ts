import { createServer } from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, managementClientOf, startTestGateway } from '../../support/gateway.ts';
import { listening } from '../../support/loopback.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { until } from '../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const HOST = 'cam.gateway.localhost';

it('another gateway of a cluster asks, through the one that serves', {
  ...unless(NO_POSTGRES),
  timeout: 60_000,
}, async () => {
  const server = await PostgresServer.start();
  onTestFinished(() => server.end());
  const start = async () => {
    const { first } = await freePorts(3);
    const ports = { httpsPort: first, httpPort: first + 1, sessionPort: first + 2, nodeAddress: `127.0.0.1:${first}` };
    return startTestGateway({ ...ports, databaseUrl: server.url(), encryptionKey: KEY, probes: ['*'] });
  };
  const gateways = [await start(), await start()] as const;
  onTestFinished(async () => void (await Promise.all(gateways.map((gateway) => gateway.close()))));
  const agents: unknown[] = [];
  const upstream = await listening(
    createServer((req, res) => {
      agents.push(req.headers['user-agent']);
      res.end();
    }),
  );
  // The second one has replaced the authtoken that the first one had issued.
  const session = await agentSession({ ...gateways[0], authtoken: gateways[1].authtoken }).connect();
  onTestFinished(() => session.close().catch(() => {}));
  void (await session.httpEndpoint().domain(HOST).listen(false))
    .forward(`http://127.0.0.1:${upstream}`)
    .catch(() => {});
  await until(() => agents.length > 0, 'somebody asks', { everyMs: 100 });
  expect(agents).toEqual([expect.stringMatching(/^device-agent-probe\//)]);
  // The gateway that serves it has not asked, shows what the other one has found, and counts no client.
  const clients = await Promise.all(gateways.map((gateway) => managementClientOf(gateway)));
  const shown = async () => Promise.all(clients.map(async (client) => (await client.endpoints.list()).items[0]?.probe));
  const areShown = async () => (await shown()).every((probe) => probe?.reached === true);
  await until(areShown, 'what it has found', { everyMs: 100 });
  expect(agents).toHaveLength(1);
  expect(gateways[0].endpoints.list()[0]?.traffic).toMatchObject({ requests: 0, received: 0, sent: 0 });
});
