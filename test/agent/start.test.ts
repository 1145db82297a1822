import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { open, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const KEY = privateKey.export({ type: 'pkcs8', format: 'pem' });

const tunnel = {
  id: 'camera',
  protocol: 'http',
  forwards_to: 'localhost:9',
  domain: 'camera.localhost',
  url: 'https://camera.localhost:8443',
  policy: null,
  created_at: '2026-01-01T00:00:00.000Z',
};

/** An agent whose gateway is still starting: it waits for the key of its CA, which `giveKey` writes into a pipe. */
async function starting() {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'data', 'gateway'), { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, 'data', 'tunnels.json'), JSON.stringify({ version: 1, tunnels: [tunnel] }));
  const pipe = join(folder, 'data', 'gateway', 'ca-key.pem');
  execFileSync('mkfifo', ['-m', '600', pipe]);
  const agent = AgentProcess.start(folder);
  onTestFinished(async () => {
    await agent.end('SIGKILL');
  });
  const api = await agent.api();
  const get = async (path: string) => {
    const answer = await fetch(api + path);
    return { status: answer.status, body: await answer.json() };
  };
  const giveKey = async (text: string | Buffer = KEY) => {
    const written = await open(pipe, 'w');
    // What reads the key again finds a file.
    await writeFile(`${pipe}.file`, text, { mode: 0o600 });
    await rename(`${pipe}.file`, pipe);
    await written.writeFile(text);
    await written.close();
  };
  return { agent, api, get, giveKey };
}

it('the API answers before the embedded gateway starts, reports its status, and starts tunnels once a session is online', async () => {
  const { agent, api, get, giveKey } = await starting();
  expect(await get('/healthz')).toEqual({ status: 200, body: { status: 'alive' } });
  expect((await get('/readyz')).status).toBe(503);
  expect((await get('/status')).body).toMatchObject({
    session: { state: 'connecting', gateway: 'the embedded gateway' },
    tunnels: { total: 1, connecting: 1 },
    addresses: { api },
  });
  expect((await get('/tunnels')).body).toMatchObject([{ domain: 'camera.localhost' }]);
  const post = () => {
    const body = JSON.stringify({ protocol: 'http', forwards_to: '9', domain: 'door.localhost' });
    return fetch(`${api}/tunnels`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  };
  const refused = await post();
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5']);
  expect(await refused.json()).toMatchObject({ error_code: 'ERR_AGENT_OFFLINE' });

  await giveKey();
  await agent.ready();
  expect((await get('/status')).body).toMatchObject({
    session: { state: 'online', gateway: expect.stringMatching(/^127\.0\.0\.1:\d+$/) },
    tunnels: { total: 1, online: 1 },
    addresses: { api, gateway_https: expect.stringMatching(/^127\.0\.0\.1:\d+$/) },
  });
  expect((await post()).status).toBe(200);
});

it('an embedded gateway that cannot start stops the agent, even with a client connected to its API', async () => {
  const { agent, get, giveKey } = await starting();
  expect((await get('/healthz')).status).toBe(200);
  const ended = once(agent.child, 'exit');
  await giveKey('no key');
  expect(await ended).toEqual([1, null]);
});

it('a stop during the start of the embedded gateway ends the agent in order', async () => {
  const { agent, giveKey } = await starting();
  const ended = agent.end('SIGTERM');
  await agent.logged('stopping');
  await giveKey();
  expect(await ended).toBe(0);
});

it('an API that other machines can reach is logged as unencrypted, one on loopback is not', async () => {
  const warning = 'API and its token cross the network unencrypted; use AGENT_DOMAIN for remote access';
  for (const [host, count] of [
    ['0.0.0.0', 1],
    ['127.0.0.1', 0],
  ] as const) {
    const folder = temporaryFolder();
    const agent = AgentProcess.start(folder, { AGENT_HOST: host });
    onTestFinished(async () => {
      await agent.end('SIGKILL');
    });
    await agent.logged('session online');
    expect(agent.lines.filter(({ level, msg }) => level === 'warn' && msg === warning)).toHaveLength(count);
  }
});
