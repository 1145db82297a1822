import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { AgentProcess, CLI, deviceAgent } from '../../support/agent-process.ts';
import { exchange } from '../../support/https-exchange.ts';
import { sharedFolder, temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const folder = sharedFolder();
/** A process starts, and one that polls notices. */
const PATIENT = { withinMs: 20_000, everyMs: 20 };
const server = createServer().listen(0, '127.0.0.1');
let upstream: string;
let agent: AgentProcess;
let api: string;
let env: Record<string, string>;

beforeAll(async () => {
  agent = AgentProcess.start(folder);
  upstream = String((server.address() as AddressInfo).port);
  api = await agent.ready();
  env = { AGENT_PORT: new URL(api).port };
});
beforeEach(async () => {
  const items = (await (await fetch(`${api}/tunnels`)).json()) as { url_part: string }[];
  for (const { url_part } of items) await fetch(`${api}/tunnels/${url_part}`, { method: 'DELETE' });
});
afterAll(async () => {
  await agent.end();
  server.close();
});

const tunnels = (...args: string[]) => deviceAgent(['tunnels', ...args], folder, env);
/** A tunnel that is there before: a command would take ten times as long. */
const given = async (domain: string, forwards_to = upstream) => {
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${api}/tunnels`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ domain, forwards_to }),
  });
  expect(answer.status).toBe(200);
  return (await answer.json()) as { url: string };
};

it('tunnels without a tunnel shows how to start one', async () => {
  expect(await tunnels()).toMatchObject({ code: 0, stdout: expect.stringContaining('tunnels start 8001'), stderr: '' });
  expect(JSON.parse((await tunnels('--json')).stdout)).toEqual([]);
});

it('tunnels start prints the URL, or the response with --json', async () => {
  const people = await tunnels('start', upstream, '--domain', 'one.localhost');
  expect(people).toMatchObject({ code: 0, stderr: '' });
  expect(people.stdout).toMatch(/^https:\/\/one\.localhost:\d+ -> localhost:\d+\n$/);
  const scripts = await tunnels('start', '127.0.0.1:8002', '-d', 'two-is-longer.localhost', '--json');
  expect(JSON.parse(scripts.stdout)).toMatchObject({ domain: 'two-is-longer.localhost', policy: null });
  // In a trial, all names below localhost are the agent's own.
  const label = await tunnels('start', upstream, '-d', 'camera', '--json');
  expect(JSON.parse(label.stdout)).toMatchObject({ domain: 'camera.localhost' });
});

it('tunnels start notes that nothing listens at the upstream, and tunnels change forwards elsewhere', async () => {
  const { code, stderr } = await tunnels('start', '1', '-d', 'one.localhost');
  expect(code).toBe(0);
  expect(stderr).toBe('device-agent: note: nothing listens at localhost:1; clients get errors until something does\n');
  expect(await tunnels('change', 'one')).toMatchObject({ code: 2, stderr: expect.stringMatching(/nothing to change/) });
  const changed = await tunnels('change', 'one', '--forwards-to', upstream);
  expect(changed).toMatchObject({
    code: 0,
    stderr: '',
    stdout: expect.stringMatching(/^https:.* -> localhost:\d+\n$/),
  });
});

it('tunnels start and tunnels change set and reset how the agent connects to an https upstream', async () => {
  writeFileSync(join(folder, 'ca.pem'), 'nothing');
  const wrong = await tunnels(
    'start',
    'https://127.0.0.1:1',
    '-d',
    'one.localhost',
    '--upstream-tls-ca-file',
    'ca.pem',
  );
  expect(wrong).toMatchObject({ code: 1, stderr: expect.stringContaining('the file has no certificate as PEM') });
  const options = ['--upstream-tls-verify', 'false', '--upstream-tls-min-version', '1.0'];
  await tunnels('start', 'https://127.0.0.1:1', '-d', 'one.localhost', ...options, '--upstream-tls-server-name', 'cam');
  const shown = (await tunnels('show', 'one')).stdout;
  expect(shown).toMatch(/Verify TLS: +false\n/);
  expect(shown).toMatch(/Server name: +cam\n/);
  const changed = await tunnels('change', 'one', '--upstream-tls-server-name', 'default', '--json');
  const { upstream_tls_verify, upstream_tls_min_version, upstream_tls_server_name } = JSON.parse(changed.stdout);
  expect([upstream_tls_verify, upstream_tls_min_version, upstream_tls_server_name]).toEqual([false, '1.0', undefined]);
});

it('tunnels list prints an aligned table with states, or JSON', async () => {
  await given('one.localhost');
  await given('two-is-longer.localhost', '1');
  const [head = '', ...rows] = (await tunnels('list')).stdout.trimEnd().split('\n');
  expect(head.split(/ {2,}/)).toEqual(['NAME', 'STATE', 'URL', 'FORWARDS TO', 'UPSTREAM', 'REQUESTS', 'LAST']);
  expect(rows[0]).toMatch(/^one +online +.* +answers +\S+ +\S+$/);
  expect(rows[1]).toMatch(/^two-is-longer +degraded +.* +refused for \d+ s +\S+ +\S+$/);
  expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual(['one', 'two-is-longer']);
  expect(new Set([head.indexOf('URL'), ...rows.map((row) => row.indexOf('https://'))]).size).toBe(1);
  const items = JSON.parse((await tunnels('list', '--json')).stdout);
  expect(items.map((item: { url_part: string }) => item.url_part)).toEqual(['one', 'two-is-longer']);
});

it('tunnels list --watch prints again, and says so when the agent stops answering', async () => {
  const other = temporaryFolder();
  const watched = AgentProcess.start(other);
  const { port } = new URL(await watched.ready());
  const child = spawn(process.execPath, [CLI, 'tunnels', '--watch'], {
    cwd: other,
    env: { PATH: process.env.PATH, AGENT_PORT: port },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  await until(() => output.includes('No tunnels.'), 'the first answer', PATIENT);
  await watched.end('SIGKILL');
  await until(() => /No answer for \d+ s: no agent answers/.test(output), 'the loss shown', PATIENT);
});

it('tunnels show prints a tunnel and its state', async () => {
  await given('one.localhost');
  const { code, stdout } = await tunnels('show', 'one');
  expect(code).toBe(0);
  expect(stdout).toMatch(/^Status: +online since /m);
  expect(stdout).toMatch(/^Forwards to: localhost:\d+ \(http\)$/m);
  expect(stdout).toMatch(/^Upstream: +answers since /m);
  expect(JSON.parse((await tunnels('show', 'one.localhost', '--json')).stdout)).toMatchObject({ status: 'online' });
});

it('tunnels start takes options of the endpoint, and show shows them', async () => {
  const options = ['--app-protocol', 'http1', '--pooling', '--metadata', 'hall 3', '--proxy-proto', '2'];
  expect((await tunnels('start', upstream, '-d', 'two.localhost', ...options)).code).toBe(0);
  const { stdout } = await tunnels('show', 'two');
  expect(stdout).toMatch(/^Speaks: +http1\nPooling: +true\nMetadata: +hall 3\nPROXY: +2$/m);
  const { code, stderr } = await tunnels('start', upstream, '--binding', 'internal');
  expect([code, stderr]).toEqual([1, expect.stringContaining('a domain below .internal is needed')]);
});

it.each([
  [[], 'tunels', 'tunnels'],
  [['tunnels'], 'lst', 'list'],
  [['gateway'], 'bakup', 'backup'],
])('a misspelt command names the one that was meant and the help: %j %s', async (before, misspelt, meant) => {
  const help = [...['device-agent', ...before], '--help'].join(' ');
  expect(await deviceAgent([...before, misspelt], folder, env)).toEqual({
    code: 2,
    stdout: '',
    stderr: `device-agent: unknown command '${misspelt}'\n(Did you mean ${meant}?)\n(run ${help} for usage)\n`,
  });
});

it('an unknown option names the help of the program, and the option that was meant', async () => {
  const { code, stderr } = await deviceAgent(['--frobnicate'], folder, env);
  expect([code, stderr]).toEqual([
    2,
    "device-agent: unknown option '--frobnicate'\n(run device-agent --help for usage)\n",
  ]);
  expect((await tunnels('--wacth')).stderr).toContain("unknown option '--wacth'\n(Did you mean --watch?)");
  expect((await tunnels('start', '8001', '--domian', 'a')).stderr).toContain('(Did you mean --domain?)');
});

it('-v shows the version, as -V and --version do', async () => {
  const [short, long] = [await deviceAgent(['-v'], folder), await deviceAgent(['--version'], folder)];
  expect(short).toEqual(long);
  expect(short).toMatchObject({ code: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+/) });
});

it('http, tcp and tls are short for tunnels start', async () => {
  expect((await deviceAgent(['http', upstream, '-d', 'one.localhost'], folder, env)).stdout).toMatch(/^https:\/\/one/);
  expect((await deviceAgent(['tcp', upstream], folder, env)).stdout).toMatch(/^tcp:\/\/localhost:\d+ -> localhost/);
  expect((await deviceAgent(['tls', upstream, '-d', 'two.localhost'], folder, env)).stdout).toMatch(/^tls:\/\/two/);
});

it('status prints what works, or each problem with its remedy, and exits with 0 or 1', async () => {
  const status = (...args: string[]) => deviceAgent(['status', ...args], folder, env);
  await given('one.localhost');
  const good = await status();
  expect(good).toMatchObject({ code: 0, stderr: '' });
  expect(good.stdout).toMatch(/^Session +online for \d+ (?:s|min), 127\.0\.0\.1:\d+$/m);
  expect(good.stdout).toMatch(/^Tunnels +1: 1 online$/m);
  expect(good.stdout).toContain('Everything works.');
  await given('two.localhost', '1');
  const bad = await status();
  expect(bad.code).toBe(1);
  expect(bad.stdout).toMatch(
    /^✖ https:\/\/two\.localhost:\d+ is degraded: upstream localhost:1 refuses .*\n {2}→ start the/m,
  );
  const { ok, session, problems, page } = JSON.parse((await status('--json')).stdout);
  expect({ ok, state: session.state, page }).toEqual({ ok: false, state: 'online', page: `${api}/` });
  expect(problems).toEqual([{ problem: expect.stringContaining('two.localhost'), remedy: expect.any(String) }]);
  const none = await deviceAgent(['status'], folder, { AGENT_PORT: '1' });
  expect(none).toMatchObject({ code: 3, stdout: '', stderr: expect.stringContaining('no agent answers') });
});

it('logs says where the log is when there is no service', async () => {
  const { code, stderr } = await deviceAgent(['logs'], folder, env);
  expect([code, stderr]).toEqual([4, expect.stringContaining('writes its log to standard output')]);
});

it('tunnels start --policy reads YAML', async () => {
  writeFileSync(join(folder, 'deny.yaml'), 'on_http_request:\n  - actions:\n      - type: deny\n');
  expect((await tunnels('start', upstream, '-d', 'yaml.localhost', '--policy', 'deny.yaml')).code).toBe(0);
  expect((await tunnels('show', 'yaml')).stdout).toContain('"type":"deny"');
});

it('tunnels start exits with 2 for an unusable policy file', async () => {
  writeFileSync(join(folder, 'broken.json'), '{');
  for (const file of ['broken.json', 'missing.json']) {
    const { code, stderr } = await tunnels('start', '8001', '--policy', file);
    expect([code, stderr]).toEqual([2, expect.stringContaining(file)]);
  }
});

it.each(['', '# deny everyone\n', '---\n', 'null'])(
  'a policy file with %j never means the default policies',
  async (text) => {
    writeFileSync(join(folder, 'empty.yaml'), text);
    await given('strict.localhost');
    const said = expect.stringContaining('empty.yaml: it has no policy; write {} for a policy without rules');
    const started = await tunnels('start', '8001', '--policy', 'empty.yaml');
    const changed = await tunnels('change', 'strict', '--policy', 'empty.yaml');
    for (const { code, stderr } of [started, changed]) expect([code, stderr]).toEqual([2, said]);
  },
);

it('tunnels start exits with 1 and prints the reasons when the agent refuses', async () => {
  await given('one.localhost');
  const taken = await tunnels('start', '8001', '-d', 'one.localhost');
  expect(taken).toMatchObject({ code: 1, stdout: '' });
  expect(taken.stderr).toMatch(
    /^device-agent: domain in use: .* uses one\.localhost; .*\(ERR_AGENT_DOMAIN_IN_USE\)\n$/,
  );
  const invalid = await tunnels('start', 'http://', '-d', 'bad_name', '--max-connections', '0');
  expect(invalid.code).toBe(1);
  expect(invalid.stderr).toMatch(/^device-agent: forwards_to: .*\n {2}domain: .*\n {2}max_connections: .*\n$/);
  expect(await tunnels('start', '8001', '-p', 'udp')).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/'udp' is invalid. Allowed choices are http, tcp, tls/),
  });
  // The reason is not repeated.
  expect((await tunnels('start', '99999')).stderr).toMatch(/^device-agent: forwards_to: .*_INVALID_REQUEST\)\n$/);
  const unreserved = await tunnels('start', '8001', '-d', 'cam.example.com');
  expect(unreserved.stderr).toMatch(/cam\.example\.com is not reserved; names below localhost need no .*ERR_NGROK_319/);
  expect((await tunnels('start', '22', '-p', 'tcp', '-d', 'localhost:22')).stderr).toContain('ERR_NGROK_307');
});

it('tunnels delete, or rm, prints nothing, and exits with 4 when the tunnel does not exist', async () => {
  await given('one.localhost');
  await given('two.localhost');
  expect(await tunnels('delete', 'one')).toEqual({ code: 0, stdout: '', stderr: '' });
  expect(await tunnels('rm', 'two')).toEqual({ code: 0, stdout: '', stderr: '' });
  expect(JSON.parse((await tunnels('ls', '--json')).stdout)).toEqual([]);
  for (const command of ['delete', 'show']) {
    const { code, stderr } = await tunnels(command, 'one');
    expect([code, stderr]).toEqual([4, expect.stringMatching(/^device-agent: .*one.*\n$/)]);
  }
});

it('share makes a link that opens the tunnel, and shares shows and revokes it', async () => {
  const { url } = await given('one.localhost');
  const made = await deviceAgent(['share', 'one', '--for', '24h', '--protect', '--json'], folder, env);
  const { id, link } = JSON.parse(made.stdout);
  expect((await exchange(url)).status).toBe(403);
  expect((await exchange(link, { method: 'POST' })).status).toBe(303);
  const revoked = await deviceAgent(['shares', 'revoke', id, '--json'], folder, env);
  expect([revoked.code, JSON.parse(revoked.stdout)]).toEqual([0, { revoked: id }]);
  expect((await exchange(link, { method: 'POST' })).status).toBe(403);
  expect(await deviceAgent(['shares'], folder, env)).toMatchObject({ code: 0, stdout: '' });
});

it('tunnels exits with 3 when no agent answers, also at a port that browsers block', async () => {
  const { code, stderr } = await deviceAgent(['tunnels'], folder, { AGENT_PORT: '1' });
  expect(code).toBe(3);
  expect(stderr).toContain('ECONNREFUSED');
  expect(stderr).toMatch(/^device-agent: no agent answers at http:\/\/127\.0\.0\.1:1: .*device-agent run\n$/);
});
