import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent } from '../../support/agent-process.ts';
import { agentSettings, startTestGateway } from '../../support/gateway.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const saved = (domain: string, url: string, policy: object | null = null) => ({
  id: domain,
  protocol: new URL(url).protocol === 'tcp:' ? 'tcp' : 'http',
  forwards_to: 'localhost:9',
  domain,
  url,
  policy,
  created_at: '2026-01-01T00:00:00.000Z',
});
const policy = { inbound: [{ actions: [{ type: 'deny', config: { status_code: 418 } }] }] };
/** Of a trial with the embedded gateway. */
const TUNNELS = [
  saved('cam.localhost', 'https://cam.localhost:8443', policy),
  saved('localhost:20417', 'tcp://localhost:20417'),
  saved('taken.localhost', 'https://taken.localhost:8443'),
  saved('elsewhere.example.org', 'https://elsewhere.example.org'),
];

it('after a trial, tunnels move to the domain of another gateway, with their policies, and a second run moves the rest', async () => {
  const gateway = await startTestGateway({ domain: 'gw.example.com', tcpPorts: { first: 21_000, last: 21_999 } });
  onTestFinished(() => gateway.close());
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'data'), { mode: 0o700 });
  writeFileSync(join(folder, 'data/tunnels.json'), JSON.stringify({ version: 1, tunnels: TUNNELS }));
  const agent = AgentProcess.inTest(folder, agentSettings(gateway));

  const { count, command } = await agent.logged('the gateway refuses names below localhost; move these tunnels');
  expect([count, command]).toEqual([3, expect.stringMatching(/^device-agent tunnels move --to /)]);
  expect(agent.lines).toContainEqual(
    expect.objectContaining({ level: 'warn', msg: 'some tunnels are not online', online: 0, failed: 4 }),
  );

  const api = await agent.api();
  const send = async (method: string, path: string, body?: object) => {
    const headers = { 'content-type': 'application/json' };
    return fetch(api + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  };
  await send('POST', '/tunnels', { forwards_to: '8001', domain: 'taken.gw.example.com' });
  const move = (...args: string[]) =>
    deviceAgent(['tunnels', 'move', ...args], folder, { AGENT_PORT: new URL(api).port });
  expect(await move()).toMatchObject({ code: 2, stderr: expect.stringContaining('add --to') });
  expect(await move('--to', 'gw.example.com')).toMatchObject({ code: 2 });
  const first = await move('--to', '*.gw.example.com');
  expect(first.stdout.split('\n')).toEqual([
    `moved   cam.localhost to https://cam.gw.example.com:${gateway.httpsPort}`,
    expect.stringMatching(/^moved {3}localhost:20417 to tcp:\/\/tcp\.gw\.example\.com:21\d{3}$/),
    'failed  taken.localhost: taken.gw.example.com is another tunnel here; delete one of them',
    '',
  ]);
  expect(first.code).toBe(1);

  await send('DELETE', '/tunnels/taken.gw.example.com');
  const second = JSON.parse((await move('--to', '*.gw.example.com', '--json')).stdout);
  expect(second).toEqual([{ domain: 'taken.localhost', url: expect.stringContaining('taken.gw'), reason: null }]);
  const tunnels = (await (await send('GET', '/tunnels')).json()) as { domain: string; policy: string }[];
  expect(tunnels.map(({ domain }) => domain)).toEqual([
    'elsewhere.example.org',
    'cam.gw.example.com',
    expect.stringMatching(/^tcp\.gw\.example\.com:/),
    'taken.gw.example.com',
  ]);
  expect(JSON.parse(String(tunnels[1]?.policy))).toMatchObject(policy);
  expect(await move('--to', '*.gw.example.com')).toMatchObject({ code: 0, stdout: 'no tunnels at *.localhost\n' });
});
