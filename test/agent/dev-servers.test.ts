import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { join } from 'node:path';
import { createServer, type ServerOptions } from 'vite';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { AgentProcess } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { agentSettings, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Not below `localhost`, which Vite trusts. */
const HOST = 'cam.dev.test';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ domain: 'dev.test' });
});
afterAll(() => gateway.close());

/** The port of a Vite that serves a page with a module. */
async function startVite(server: ServerOptions): Promise<number> {
  const root = temporaryFolder();
  writeFileSync(join(root, 'index.html'), '<h1>page</h1><script type="module" src="/main.js"></script>');
  writeFileSync(join(root, 'main.js'), 'console.log(1);');
  const options = { root, configFile: false, logLevel: 'silent', optimizeDeps: { noDiscovery: true } } as const;
  const vite = await createServer({ ...options, server: { host: '127.0.0.1', port: 0, ...server } });
  onTestFinished(() => vite.close());
  await vite.listen();
  return Number(new URL(vite.resolvedUrls?.local[0] ?? '').port);
}

/** What a browser gets of a tunnel's page, its module, and the connection for hot reload. */
async function browse() {
  const get = (path: string) => getPublic(gateway, `https://${HOST}${path}`);
  const [page, module, client] = [await get('/'), await get('/main.js'), await get('/@vite/client')];
  const token = /wsToken = "([^"]+)"/.exec(client.body)?.[1] ?? '';
  const address = `wss://127.0.0.1:${gateway.httpsPort}/?token=${token}`;
  const headers = { host: HOST, origin: `https://${HOST}` };
  const options: RequestOptions = { servername: HOST, ca: gateway.sessionCa, headers };
  const socket = new WebSocket(address, 'vite-hmr', options);
  const hotReload = await Promise.race([
    once(socket, 'message').then(([data]) => JSON.parse(String(data)).type),
    once(socket, 'unexpected-response').then(([, res]) => res.statusCode),
  ]);
  socket.on('error', () => {});
  socket.terminate();
  return { page: page.status, module: module.status, hotReload };
}

describe.each(CONNECTORS)('a tunnel to Vite, with the connector %s', (connector) => {
  it.each([
    ['is blocked by its check of the host', {}, {}, { page: 403, module: 403, hotReload: 400 }],
    [
      'serves pages and hot reload with --host-header rewrite',
      {},
      { host_header: 'rewrite' },
      { page: 200, module: 200, hotReload: 'connected' },
    ],
    [
      'serves pages and hot reload with server.allowedHosts',
      { allowedHosts: [HOST] },
      {},
      { page: 200, module: 200, hotReload: 'connected' },
    ],
  ])('%s', async (_, server, options, expected) => {
    const forwards_to = await startVite(server);
    const agent = AgentProcess.inTest(temporaryFolder(), { ...agentSettings(gateway), AGENT_CONNECTOR: connector });
    const answer = await fetch(`${await agent.ready()}/tunnels`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ forwards_to, domain: HOST, policy: {}, ...options }),
    });
    expect(answer.status).toBe(200);
    expect(await browse()).toEqual(expected);
    await agent.end();
  });
});
