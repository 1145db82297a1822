import { expect, it, onTestFinished } from 'vitest';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { persistTunnels } from '../../faults/persisted-tunnels.ts';
import { AgentProcess } from '../../support/agent-process.ts';
import { startClusterNode } from '../../support/cluster-node.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { startHttpService } from '../../support/http-service.ts';
import { exchange } from '../../support/https-exchange.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const NAME = 'camera.localhost';

it('clients of a session that falls silent get their answers by the other session of the device, and nothing is done twice', {
  timeout: 120_000,
  ...unless(NO_POSTGRES),
}, async () => {
  const database = await PostgresServer.start();
  onTestFinished(() => database.end());
  const [one, two] = [await startClusterNode(database.url()), await startClusterNode(database.url())];
  const link = await FlakyProxy.start(one.sessionAddress);
  onTestFinished(() => link.close());
  const seen: string[] = [];
  const upstream = await startHttpService((req, res) => {
    seen.push(`${req.method} ${req.url}`);
    res.end('seen');
  });
  onTestFinished(() => upstream.close());
  const folder = temporaryFolder();
  const { port } = new URL(upstream.url);
  persistTunnels(folder, [{ domain: NAME, forwards_to: `localhost:${port}`, url: `https://${NAME}` }]);
  const { token } = await one.store.database.write(() => issueCredential(one.store, { acl: [] }));
  const agent = AgentProcess.start(folder, {
    NGROK_AUTHTOKEN: token,
    NGROK_SERVER_ADDR: link.address,
    NGROK_CA_CERT: one.caFile,
    AGENT_CONNECTOR: 'native',
  });
  onTestFinished(() => agent.end('SIGKILL').then(() => {}));
  const haveIt = () => [one, two].every(({ endpoints }) => endpoints.list().length === 1);
  await until(haveIt, 'a session at each gateway', { everyMs: 50, withinMs: 60_000 });

  const ask = async (method: string, path: string, name = NAME) => {
    const began = performance.now();
    const url = `https://${name}:${one.httpsPort}${path}`;
    const { status } = await exchange(url, { method, headers: { host: NAME } });
    return { status, seconds: (performance.now() - began) / 1000 };
  };
  await until(async () => (await ask('GET', '/before')).status === 200, 'the tunnel');

  link.silence();
  const posted = ask('POST', '/waits');
  const read = await ask('GET', '/waits');
  expect(read.status).toBe(200);
  expect(read.seconds).toBeGreaterThan(1.9);
  expect(read.seconds).toBeLessThan(5);
  // What has not been sent yet goes there at once.
  const next = await ask('POST', '/next');
  expect(next.status).toBe(200);
  expect(next.seconds).toBeLessThan(2);
  // Nobody knows whether it was done.
  expect((await posted).status).toBe(502);
  expect(seen.filter((each) => each !== 'GET /before')).toEqual(['GET /waits', 'POST /next']);
  link.speak();
});
