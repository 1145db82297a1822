import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { AgentProcess, deviceAgent } from '../../support/agent-process.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const FILE = 'tunnels.yaml';
const denying = `
      on_http_request:
        - actions:
            - type: deny`;

function setUp() {
  const folder = temporaryFolder();
  let env: Record<string, string> = { AGENT_PORT: '1' };
  const write = (text: string) => writeFileSync(join(folder, FILE), text);
  const apply = (...options: string[]) => deviceAgent(['tunnels', 'apply', FILE, ...options], folder, env);
  const saved = () => {
    const { tunnels } = JSON.parse(readFileSync(join(folder, 'data/tunnels.json'), 'utf8'));
    return tunnels.map((tunnel: Record<string, unknown>) => [tunnel.domain, tunnel.forwards_to, tunnel.policy]);
  };
  const start = async (more: Record<string, string> = {}) => {
    const agent = AgentProcess.inTest(folder, more);
    env = { AGENT_PORT: new URL(await agent.ready()).port };
    return agent;
  };
  return { folder, write, apply, saved, start };
}

const two = `
tunnels:
  - domain: camera.localhost
    forwards_to: 8001
  - domain: web.localhost
    forwards_to: localhost:8002
    policy:${denying}
`;

it('tunnels apply creates, changes and prunes tunnels of a running agent, and repeats without changes', async () => {
  const { write, apply, saved, start } = setUp();
  await start();
  write(two);
  expect((await apply('--dry-run')).stdout).toMatch(
    /^created .*\ncreated .*\n2 created \(dry run: nothing was changed\)\n$/,
  );
  expect(await apply()).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(
      /^created {4}camera.localhost: nothing listens .*\ncreated {4}web.localhost.*\n2 created\n$/,
    ),
  });
  expect((await apply()).stdout).toMatch(/\n2 unchanged\n$/);
  write(two.replace('8001', '8003').replace('web.', 'new.'));
  const kept = await apply();
  expect(kept.stdout).toMatch(
    /^changed {4}camera.localhost: forwards_to\ncreated {4}new.localhost: nothing listens .*\n1 created, 1 changed\n$/,
  );
  expect((await apply('--prune')).stdout).toMatch(/^deleted {4}web\.localhost\n/);
  const policy = { on_http_request: [{ actions: [{ type: 'deny' }] }] };
  expect(saved()).toEqual([
    ['camera.localhost', 'localhost:8003', null],
    ['new.localhost', 'localhost:8002', policy],
  ]);
});

it('tunnels apply sets and resets options of a tunnel, whether an agent runs or not', async () => {
  const { folder, write, apply, start } = setUp();
  mkdirSync(join(folder, 'data'), { mode: 0o700 });
  const declare = (...options: string[]) =>
    write(
      `tunnels:\n  - {${['domain: cam.localhost', 'forwards_to: "https://127.0.0.1:1"', ...options].join(', ')}}\n`,
    );
  const saved = () => JSON.parse(readFileSync(join(folder, 'data/tunnels.json'), 'utf8')).tunnels[0];
  declare('upstream_tls_verify: false');
  expect((await apply()).stdout).toMatch(/^created/);
  declare('upstream_tls_min_version: "1.0"', 'max_connections: 2');
  const changed =
    /^changed {4}cam\.localhost: (?=.*max_connections)(?=.*upstream_tls_verify).*upstream_tls_min_version/;
  expect((await apply()).stdout).toMatch(changed);
  const options = { upstream_tls_min_version: '1.0', max_connections: 2 };
  expect(saved()).toMatchObject(options);
  expect(saved()).not.toHaveProperty('upstream_tls_verify');
  await start();
  declare('upstream_tls_server_name: cam.lan');
  expect((await apply()).stdout).toMatch(/^changed/);
  expect(saved()).toMatchObject({ upstream_tls_server_name: 'cam.lan', policy: null });
  for (const option of Object.keys(options)) expect(saved()).not.toHaveProperty(option);
  expect((await apply()).stdout).toMatch(/1 unchanged/);
});

it('tunnels apply leaves a tunnel as it was when the change fails, and exits with 1', async () => {
  const { write, apply, saved, start } = setUp();
  await start();
  write(two);
  await apply();
  const before = saved();
  write(
    two
      .replace('8001', '8.8.8.8:80')
      .replace('localhost:8002', 'localhost:8002\n    protocol: tls')
      .replace(`    policy:${denying}\n`, ''),
  );
  const { code, stdout, stderr } = await apply('--json');
  expect([code, stderr]).toEqual([1, expect.stringContaining('2 of 2 tunnels differ from tunnels.yaml')]);
  expect(JSON.parse(stdout)).toEqual([
    { domain: 'camera.localhost', result: 'failed', detail: expect.stringContaining('upstream not allowed') },
    { domain: 'web.localhost', result: 'failed', detail: expect.stringContaining('cannot be changed') },
  ]);
  expect(saved()).toEqual(before);
});

it.each([
  ['tunnels: [', 'not YAML'],
  ['', 'a list called tunnels'],
  ['tunnels:\n  - forwards_to: 1\n', 'domain: must be a hostname'],
  [
    'tunnels:\n  - domain: a.b\n    forwards_to: 1\n    policy: # none\n',
    'tunnels[0].policy: is empty; write {} for no rules',
  ],
  ['tunnels:\n  - {domain: a.b, forwards_to: 1}\n  - {domain: a.b, forwards_to: 2}\n', 'declared more than once'],
])('tunnels apply changes nothing when the file is %j', async (text, problem) => {
  const { write, apply } = setUp();
  write(text);
  expect(await apply()).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(problem) });
});

it('tunnels apply takes a single label where it has a site to complete it, such as that of a trial', async () => {
  const { folder, write, apply } = setUp();
  mkdirSync(join(folder, 'data'), { mode: 0o700 });
  write('tunnels:\n  - {domain: cam, forwards_to: 1}\n');
  expect(await apply()).toMatchObject({ code: 0, stderr: expect.stringContaining('no agent is running') });
  writeFileSync(join(folder, '.env'), 'NGROK_AUTHTOKEN=any\n');
  expect(await apply()).toMatchObject({
    code: 2,
    stdout: '',
    stderr: expect.stringContaining('give the whole hostname'),
  });
});

it('an agent applies the files of AGENT_TUNNELS_DIR at its start, and a broken file keeps no tunnel offline', {
  timeout: 180_000,
}, async () => {
  const { folder, write, apply, saved, start } = setUp();
  mkdirSync(join(folder, 'data'), { mode: 0o700 });
  write(two);
  expect((await apply()).stderr).toContain('no agent is running');
  mkdirSync(join(folder, 'tunnels.d'));
  const declared = join(folder, 'tunnels.d/10-camera.yaml');
  writeFileSync(
    declared,
    'tunnels:\n  - {domain: camera.localhost, forwards_to: 8009}\n  - {domain: door.localhost, forwards_to: 8004}\n',
  );
  const env = { AGENT_TUNNELS_DIR: 'tunnels.d' };
  const first = await start(env);
  await first.logged('tunnel changed as declared');
  await first.end();
  const tunnels = [
    ['camera.localhost', 'localhost:8009', null],
    ['web.localhost', 'localhost:8002', expect.anything()],
    ['door.localhost', 'localhost:8004', null],
  ];
  expect(saved()).toEqual(tunnels);
  writeFileSync(declared, 'tunnels: nonsense');
  const second = await start(env);
  expect(await second.logged('declared tunnels not applied')).toMatchObject({ level: 'error' });
  expect(saved()).toEqual(tunnels);
});
