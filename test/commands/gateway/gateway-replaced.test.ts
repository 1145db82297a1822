import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import ngrok from '@ngrok/ngrok';
import { expect, it, onTestFinished } from 'vitest';
import { CLI, outcomeOf } from '../../support/agent-process.ts';
import { freePorts } from '../../support/free-ports.ts';
import { GatewayProcess } from '../../support/gateway-process.ts';
import { ask } from '../../support/http-request.ts';
import { serving } from '../../support/loopback.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const NAME = 'camera.localhost';

it('a gateway with held sockets that is replaced loses no request, also none that is under way', async () => {
  const gateway = await GatewayProcess.start(temporaryFolder(), {}, { held: true });
  onTestFinished(() => gateway.kill());
  let release = () => {};
  let held = 0;
  const upstream = createServer((req, res) => {
    if (req.url !== '/held') return void res.end('seen');
    held += 1;
    release = () => res.end('seen late');
  });
  const port = await serving(upstream);
  const session = await new ngrok.SessionBuilder()
    .authtoken(gateway.authtoken)
    .serverAddr(gateway.sessionAddress)
    .caCert(Buffer.from(gateway.sessionCa))
    .connect();
  onTestFinished(() => session.close());
  await session.httpEndpoint().scheme('HTTP').domain(NAME).listenAndForward(`http://127.0.0.1:${port}`);
  const get = (path: string) => ask(gateway.httpPort, NAME, { path });
  await until(async () => (await get('/')).body === 'seen', 'the upstream');

  const slow = get('/held');
  await until(async () => held === 1, 'a request under way');
  let isOver = false;
  const others: Promise<number>[] = [];
  const asking = (async () => {
    for (; !isOver; await delay(10)) others.push(get('/').then(({ status }) => status));
  })();
  const replaced = gateway.replace('SIGTERM');
  await gateway.process.logged('stopping');
  const before = await get('/');
  release();
  await replaced;
  isOver = true;
  await asking;
  expect(await slow).toMatchObject({ status: 200, body: 'seen late', complete: true });
  expect(before).toMatchObject({ status: 200, body: 'seen' });
  const statuses = await Promise.all(others);
  expect(statuses.length).toBeGreaterThan(20);
  expect(new Set(statuses)).toEqual(new Set([200]));
});

it('a socket of systemd that no setting names is an error that names both', async () => {
  const folder = temporaryFolder();
  const { first } = await freePorts(3);
  const holder = `
    const server = require('node:net').createServer().listen(${first}, '127.0.0.1', () => {
      const script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"';
      const { status } = require('node:child_process').spawnSync('sh', ['-c', script, process.execPath, ${JSON.stringify(CLI)}, 'gateway'], { stdio: [0, 1, 2, server._handle.fd] });
      process.exit(status);
    });`;
  const env = { GATEWAY_HTTPS_PORT: String(first + 1), GATEWAY_HTTP_PORT: String(first + 2) };
  const { code, stderr } = await outcomeOf(process.execPath, ['-e', holder], folder, env);
  expect([code, stderr]).toEqual([
    1,
    `device-agent: systemd holds a socket at 127.0.0.1:${first}, but the settings name 127.0.0.1:${first + 1} (GATEWAY_HTTPS_PORT), 127.0.0.1:${first + 2} (GATEWAY_HTTP_PORT): run sudo device-agent service install --gateway, which updates the socket unit\n`,
  ]);
});
