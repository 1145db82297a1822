import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { open, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { getPublic } from '../support/gateway.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';

const DONE = 'settings reloaded';
const REFUSED = 'settings reload failed; keeping the previous ones';
const FIRST_TOKEN = 'the-first-token-of-two';

const policies = (value: string, expression = 'true') =>
  JSON.stringify({
    on_http_response: [
      { expressions: [expression], actions: [{ type: 'add-headers', config: { headers: { 'x-default': value } } }] },
    ],
  });

describe('an agent that reloads its settings (SIGHUP)', () => {
  const folder = sharedFolder();
  let agent: AgentProcess;
  let api: string;
  let upstream: Server;
  let own: URL;

  const write = (file: string, text: string) => writeFileSync(join(folder, file), text);
  const settings = (...lines: string[]) =>
    write('settings.env', `${lines.join('\n')}\nDEFAULT_POLICIES=policies.json\n`);
  const reload = async (outcome: string) => {
    const from = agent.lines.length;
    agent.child.kill('SIGHUP');
    return agent.logged(outcome, from);
  };
  const visit = async (host: string, path = '/', headers: Record<string, string> = {}) => {
    const sessionCa = readFileSync(join(folder, 'data/gateway/ca.pem'), 'utf8');
    return getPublic({ httpsPort: Number(own.port), sessionCa }, `https://${host}${path}`, headers);
  };
  const shown = async (host: string) => (await visit(host)).headers['x-default'];
  const remote = async (token: string) =>
    (await visit('agent.localhost', '/tunnels', { authorization: `Bearer ${token}` })).status;
  /** Signs in as the agent's page does; resolves with the cookie. */
  const signIn = async (token: string): Promise<string> => {
    const headers = { host: own.host, origin: own.origin, 'content-type': 'application/json' };
    const ca = readFileSync(join(folder, 'data/gateway/ca.pem'));
    const options = { host: '127.0.0.1', port: own.port, servername: own.hostname, path: '/page/session', ca, headers };
    const request = httpsRequest({ ...options, method: 'POST' }).end(JSON.stringify({ token }));
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    answer.resume();
    return answer.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
  };
  const open = (body: object) =>
    fetch(`${api}/tunnels`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ protocol: 'http', forwards_to: (upstream.address() as AddressInfo).port, ...body }),
    });
  const tunnel = async (name: string) => (await fetch(`${api}/tunnels/${name}`)).json();

  beforeAll(async () => {
    upstream = createServer((_req, res) => res.end('the service')).listen(0, '127.0.0.1');
    write('policies.json', policies('one'));
    write('.env', 'AGENT_DOMIAN=me.localhost\n');
    settings(`AGENT_API_TOKEN=${FIRST_TOKEN}`);
    // Like systemd: the environment contains the file's values from the start.
    agent = AgentProcess.start(folder, { SETTINGS_FILE: 'settings.env', AGENT_API_TOKEN: FIRST_TOKEN });
    api = await agent.ready();
    own = new URL(String((await agent.logged('remote API online')).url));
    expect((await open({ domain: 'plain.localhost' })).status).toBe(200);
    expect((await open({ domain: 'own.localhost', policy: JSON.parse(policies('mine')) })).status).toBe(200);
  });
  beforeEach(async () => {
    write('policies.json', policies('one'));
    settings(`AGENT_API_TOKEN=${FIRST_TOKEN}`);
    await reload(DONE);
  });
  afterAll(async () => {
    await agent.end();
    upstream.close();
  });

  it('logs unrecognised settings in .env at the start', async () => {
    const warning = await agent.logged('unrecognised settings');
    expect(warning).toMatchObject({ level: 'warn', settings: ['AGENT_DOMIAN'], did_you_mean: ['AGENT_DOMAIN'] });
  });

  it('applies new default policies, except to tunnels with their own policy', async () => {
    expect([await shown('plain.localhost'), await shown('own.localhost')]).toEqual(['one', 'mine']);
    const before = await tunnel('own');
    write('policies.json', policies('two'));
    await reload(DONE);
    expect(await tunnel('own')).toEqual(before);
    expect(await tunnel('plain')).toMatchObject({ status: 'online', policy: policies('two') });
    expect([await shown('plain.localhost'), await shown('own.localhost')]).toEqual(['two', 'mine']);
  });

  it('uses a new API token, even when its environment still contains the old one', async () => {
    expect(await remote(FIRST_TOKEN)).toBe(200);
    settings('AGENT_API_TOKEN=the-second-token-of-two');
    await reload(DONE);
    expect([await remote(FIRST_TOKEN), await remote('the-second-token-of-two')]).toEqual([401, 200]);
  });

  it('ends the sessions of browsers that signed in with the old API token', async () => {
    const cookie = await signIn(FIRST_TOKEN);
    const signedIn = async () => (await visit('agent.localhost', '/tunnels', { cookie })).status;
    await reload(DONE);
    expect(await signedIn()).toBe(200);
    settings('AGENT_API_TOKEN=the-second-token-of-two');
    await reload(DONE);
    expect(await signedIn()).toBe(401);
  });

  it('uses the generated API token again when no other is set', async () => {
    settings();
    await reload(DONE);
    const generated = readFileSync(join(folder, 'data/api-token'), 'utf8').trim();
    expect([await remote(FIRST_TOKEN), await remote(generated)]).toEqual([401, 200]);
  });

  it.each([
    ['a value that is not supported', () => settings('LOG_LEVEL=loud'), /LOG_LEVEL="loud"/],
    ['policies that are not JSON', () => write('policies.json', '{'), /policies\.json.*not JSON/],
    [
      'policies that the gateway rejects',
      () => write('policies.json', policies('bad', '1 +')),
      /refused by the gateway/,
    ],
  ])('rejects %s, keeps all previous settings and logs the reason', async (_what, spoil, reason) => {
    settings('AGENT_API_TOKEN=a-token-that-never-counts');
    spoil();
    expect(await reload(REFUSED)).toMatchObject({ level: 'error', reason: expect.stringMatching(reason) });
    expect(await remote('a-token-that-never-counts')).toBe(401);
    expect(await shown('plain.localhost')).toBe('one');
    expect(await tunnel('plain')).toMatchObject({ status: 'online', policy: policies('one') });
  });

  it('changes the log level, and logs the settings that need a restart', async () => {
    settings('LOG_LEVEL=warn', 'AGENT_DOMAIN=other.localhost');
    const from = agent.lines.length;
    const { settings: named } = await reload('changed settings need a restart');
    expect(named).toEqual(['AGENT_DOMAIN']);
    expect(agent.lines.slice(from).map(({ level }) => level)).toEqual(['warn']);
  });
});

it('SIGHUP during the start reloads the settings after the start', async () => {
  const folder = temporaryFolder();
  const pipe = join(folder, 'policies.json');
  execFileSync('mkfifo', [pipe]);
  const agent = AgentProcess.start(folder, { DEFAULT_POLICIES: pipe });
  onTestFinished(async () => void (await agent.end()));
  // Opening the file blocks until the agent reads it, and the agent then waits for its content.
  const start = await open(pipe, 'w');
  agent.child.kill('SIGHUP');
  await start.writeFile(policies('one'));
  await start.close();
  await agent.api();
  await writeFile(pipe, policies('one'));
  await agent.logged(DONE);
});
