import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { makeFolder } from '../support/temporary-folder.ts';

const [folder, remove] = makeFolder();
let agent: AgentProcess;
let api: string;
let env: Record<string, string>;

beforeAll(async () => {
  agent = AgentProcess.start(folder);
  api = await agent.ready();
  env = { AGENT_PORT: new URL(api).port };
});
beforeEach(async () => {
  const items = (await (await fetch(`${api}/tunnels`)).json()) as { url_part: string }[];
  for (const { url_part } of items) await fetch(`${api}/tunnels/${url_part}`, { method: 'DELETE' });
});
afterAll(async () => {
  await agent.end();
  remove();
});

const tunnels = (...args: string[]) => deviceAgent(['tunnels', ...args], folder, env);

it('tunnels without a tunnel shows how to start one', async () => {
  expect(await tunnels()).toMatchObject({ code: 0, stdout: expect.stringContaining('tunnels start 8001'), stderr: '' });
  expect(JSON.parse((await tunnels('--json')).stdout)).toEqual([]);
});

it('tunnels start prints the URL, or the response with --json', async () => {
  const people = await tunnels('start', '8001', '--domain', 'one.localhost');
  expect(people).toMatchObject({ code: 0, stderr: '' });
  expect(people.stdout).toMatch(/^https:\/\/one\.localhost:\d+ -> localhost:8001\n$/);
  const scripts = await tunnels('start', '127.0.0.1:8002', '-d', 'two-is-longer.localhost', '--json');
  expect(JSON.parse(scripts.stdout)).toMatchObject({ domain: 'two-is-longer.localhost', policy: null });
});

it('tunnels list prints an aligned table, or JSON', async () => {
  await tunnels('start', '8001', '-d', 'one.localhost');
  await tunnels('start', '8002', '-d', 'two-is-longer.localhost');
  const [head = '', ...rows] = (await tunnels('list')).stdout.trimEnd().split('\n');
  expect(head.split(/ {2,}/)).toEqual(['NAME', 'URL', 'PROTOCOL', 'FORWARDS TO']);
  expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual(['one', 'two-is-longer']);
  expect(new Set([head.indexOf('URL'), ...rows.map((row) => row.indexOf('https://'))]).size).toBe(1);
  const items = JSON.parse((await tunnels('list', '--json')).stdout);
  expect(items.map((item: { url_part: string }) => item.url_part)).toEqual(['one', 'two-is-longer']);
});

it('tunnels ls and rm are short for list and delete', async () => {
  await tunnels('start', '8001', '-d', 'one.localhost');
  expect((await tunnels('ls')).stdout).toContain('one.localhost');
  expect(await tunnels('rm', 'one')).toMatchObject({ code: 0, stderr: '' });
  expect((await tunnels('ls')).stdout).not.toContain('one.localhost');
});

it('tunnels show prints a tunnel and its state', async () => {
  await tunnels('start', '8001', '-d', 'one.localhost');
  const { code, stdout } = await tunnels('show', 'one');
  expect(code).toBe(0);
  expect(stdout).toMatch(/^Status: +online since /m);
  expect(stdout).toMatch(/^Forwards to: localhost:8001 \(http\)$/m);
  expect(JSON.parse((await tunnels('show', 'one.localhost', '--json')).stdout)).toMatchObject({ status: 'online' });
});

it.each([
  [[], 'tunels'],
  [['tunnels'], 'lst'],
  [['gateway'], 'bakup'],
])('a misspelt command names the help to run: %j %s', async (before, misspelt) => {
  const help = [...['device-agent', ...before], '--help'].join(' ');
  expect(await deviceAgent([...before, misspelt], folder, env)).toEqual({
    code: 2,
    stdout: '',
    stderr: `error: unknown command '${misspelt}'\n(run ${help} for usage)\n`,
  });
});

it('an unknown option names the help of the program', async () => {
  const { code, stderr } = await deviceAgent(['--frobnicate'], folder, env);
  expect([code, stderr]).toEqual([2, expect.stringContaining('\n(run device-agent --help for usage)\n')]);
});

it('tunnels start --policy sends the policy of a file', async () => {
  writeFileSync(join(folder, 'deny.json'), '{"inbound":[{"name":"no","actions":[{"type":"deny"}]}]}');
  expect((await tunnels('start', '8001', '-d', 'denied.localhost', '--policy', 'deny.json')).code).toBe(0);
  expect((await tunnels('show', 'denied')).stdout).toContain('"type":"deny"');
});

it('tunnels start exits with 2 for an unusable policy file', async () => {
  writeFileSync(join(folder, 'broken.json'), '{');
  for (const file of ['broken.json', 'missing.json']) {
    const { code, stderr } = await tunnels('start', '8001', '--policy', file);
    expect([code, stderr]).toEqual([2, expect.stringContaining(file)]);
  }
});

it('tunnels start exits with 1 and prints the reasons when the agent refuses', async () => {
  await tunnels('start', '8001', '-d', 'one.localhost');
  const taken = await tunnels('start', '8001', '-d', 'one.localhost');
  expect(taken).toMatchObject({ code: 1, stdout: '' });
  expect(taken.stderr).toMatch(
    /^device-agent: domain in use: .* uses one\.localhost; .*\(ERR_AGENT_DOMAIN_IN_USE\)\n$/,
  );
  const invalid = await tunnels('start', 'http://', '-d', 'bad_name', '-p', 'udp');
  expect(invalid.code).toBe(1);
  expect(invalid.stderr).toMatch(/^device-agent: protocol: .*\n {2}forwards_to: .*\n {2}domain: .*\n$/);
  // The reason is not repeated.
  expect((await tunnels('start', '99999')).stderr).toMatch(/^device-agent: forwards_to: .*_INVALID_REQUEST\)\n$/);
  const unreserved = await tunnels('start', '8001', '-d', 'cam.example.com');
  expect(unreserved.stderr).toMatch(/cam\.example\.com is not reserved; names below localhost need no .*ERR_NGROK_319/);
  expect((await tunnels('start', '22', '-p', 'tcp', '-d', 'localhost:22')).stderr).toContain('ERR_NGROK_307');
});

it('tunnels delete prints nothing, and exits with 4 when the tunnel does not exist', async () => {
  await tunnels('start', '8001', '-d', 'one.localhost');
  expect(await tunnels('delete', 'one')).toEqual({ code: 0, stdout: '', stderr: '' });
  for (const command of ['delete', 'show']) {
    const { code, stderr } = await tunnels(command, 'one');
    expect([code, stderr]).toEqual([4, expect.stringMatching(/^device-agent: .*one.*\n$/)]);
  }
});

it('tunnels exits with 3 when no agent answers, also at a port that browsers block', async () => {
  const { code, stderr } = await deviceAgent(['tunnels'], folder, { AGENT_PORT: '1' });
  expect(code).toBe(3);
  expect(stderr).toContain('ECONNREFUSED');
  expect(stderr).toMatch(/^device-agent: no agent answers at http:\/\/127\.0\.0\.1:1: .*device-agent run\n$/);
});
