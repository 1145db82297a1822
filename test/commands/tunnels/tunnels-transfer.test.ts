import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { AgentProcess, CLI, deviceAgent, outcomeOf } from '../../support/agent-process.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

// Each test runs the program many times.
vi.setConfig({ testTimeout: 180_000 });

const DENY = { inbound: [{ name: 'no', actions: [{ type: 'deny' }] }] };
const DEFAULTS = readFileSync('defaults/policies.json', 'utf8');
/** The tunnel file of ngrok's sample agent in Python. */
const SAMPLE = {
  'https://one.localhost': {
    protocol: 'http',
    forwards_to: 'localhost:8001',
    domain: 'one.localhost',
    policy: DEFAULTS,
  },
  'https://two.localhost': {
    protocol: 'http',
    forwards_to: '8002',
    domain: 'two.localhost',
    policy: JSON.stringify(DENY),
  },
  'https://three.localhost': { forwards_to: 'localhost:8003' },
};

interface Stored {
  domain: string;
  forwards_to: string;
  policy: unknown;
}

function setUp() {
  const folder = temporaryFolder();
  const write = (name: string, content: unknown) => writeFileSync(join(folder, name), JSON.stringify(content));
  const onDisk = (): Stored[] => JSON.parse(readFileSync(join(folder, 'data/tunnels.json'), 'utf8')).tunnels;
  const brief = () => onDisk().map(({ domain, forwards_to, policy }) => [domain, forwards_to, policy]);
  // No agent listens on port 1.
  const tunnels = (args: string[], env: Record<string, string> = {}) =>
    deviceAgent(['tunnels', ...args], folder, { AGENT_PORT: '1', ...env });
  const makeData = () => mkdirSync(join(folder, 'data'));
  const start = () => {
    const agent = AgentProcess.inTest(folder);
    return agent;
  };
  return { folder, write, onDisk, brief, tunnels, start, makeData };
}

const IMPORTED = [
  ['one.localhost', 'localhost:8001', null],
  ['two.localhost', 'localhost:8002', DENY],
  ['three.localhost', 'localhost:8003', null],
];

describe('import without an agent', () => {
  it('saves the tunnels of the sample agent’s file once, and the next start opens them', async () => {
    const { write, brief, tunnels, start, makeData } = setUp();
    write('sample.json', SAMPLE);
    makeData();
    expect(await tunnels(['import', 'sample.json'])).toEqual({
      code: 0,
      stdout: 'created    one.localhost\ncreated    two.localhost\ncreated    three.localhost\n',
      stderr: expect.stringMatching(/^no agent is running on \/.*\/data: the tunnels start with the agent\n$/),
    });
    expect(brief()).toEqual(IMPORTED);
    const again = await tunnels(['import', 'sample.json', '--json']);
    expect(JSON.parse(again.stdout).map(({ result }: { result: string }) => result)).toEqual(
      Array(3).fill('unchanged'),
    );
    expect(brief()).toEqual(IMPORTED);
    const agent = start();
    const listed = (await (await fetch(`${await agent.ready()}/tunnels`)).json()) as { url: string }[];
    expect(listed.map(({ url }) => url)).toEqual(IMPORTED.map(([domain]) => expect.stringContaining(`${domain}:`)));
  });

  it('keeps an existing tunnel that differs, and reports it', async () => {
    const { write, brief, tunnels, makeData } = setUp();
    write('sample.json', SAMPLE);
    makeData();
    await tunnels(['import', 'sample.json']);
    write('other.json', {
      'https://one.localhost': { forwards_to: '9999' },
      'https://four.localhost': { forwards_to: '8004' },
    });
    const { code, stdout, stderr } = await tunnels(['import', 'other.json']);
    expect([code, stderr]).toEqual([1, expect.stringContaining('1 of 2 tunnels differ from other.json\n')]);
    expect(stdout).toBe(
      'kept       one.localhost: the existing tunnel has a different forwards_to; delete it first\n' +
        'created    four.localhost\n',
    );
    expect(brief()).toEqual([...IMPORTED, ['four.localhost', 'localhost:8004', null]]);
  });

  it('imports nothing from a file with errors, and reports all of them', async () => {
    const { folder, write, tunnels } = setUp();
    write('bad.json', {
      'https://fine.localhost': { forwards_to: '8001' },
      'https://bad_name.localhost': { forwards_to: 'ftp://x', protocol: 'udp' },
      'https://agent.localhost': { forwards_to: '8001' },
      'https://also.localhost': { forwards_to: '8001', domain: 'fine.localhost' },
      'https://policy.localhost': { forwards_to: '8001', policy: '{"inbound": "no"}' },
    });
    const { code, stdout, stderr } = await tunnels(['import', 'bad.json']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^device-agent: nothing was imported: bad\.json has problems/);
    expect(stderr).toMatch(/\n {2}https:\/\/bad_name\.localhost: protocol: .*\n.*forwards_to: .*\n.*domain: /);
    expect(stderr).toMatch(/\n {2}https:\/\/agent\.localhost: domain: agent\.localhost is the agent's own domain/);
    expect(stderr).toMatch(/\n {2}https:\/\/policy\.localhost: policy\.inbound: /);
    expect(stderr).toMatch(/\n {2}fine\.localhost: listed more than once/);
    expect(existsSync(join(folder, 'data'))).toBe(false);
  });

  it('rejects missing, damaged and newer files, and accepts an empty list', async () => {
    const { folder, write, tunnels, makeData } = setUp();
    write('list.json', ['https://one.localhost']);
    write('edited.json', { version: 1, tunnels: [{ id: 5 }] });
    writeFileSync(join(folder, 'torn.json'), '{"https://one.localhost":');
    write('newer.json', { version: 2, tunnels: [], groups: {} });
    for (const [file, problem] of [
      ['list.json', /neither an export of device-agent nor/],
      ['edited.json', /tunnels\[0\]\.id: must be a string, not a number; .*tunnels\[0\]\.url: is missing/],
      ['newer.json', /newer version of device-agent wrote it \(format 2, this version supports 1\)/],
      ['torn.json', /not JSON, line 1/],
      ['missing.json', /ENOENT/],
    ] as const) {
      expect(await tunnels(['import', file])).toMatchObject({ code: 2, stderr: expect.stringMatching(problem) });
    }
    expect(existsSync(join(folder, 'data'))).toBe(false);
    makeData();
    write('none.json', { version: 1, tunnels: [] });
    expect(await tunnels(['import', 'none.json'])).toMatchObject({
      code: 0,
      stdout: 'no tunnels in none.json\n',
    });
  });
});

it('a running agent exports, and imports through its API', async () => {
  const { folder, write, brief, tunnels, start } = setUp();
  write('sample.json', SAMPLE);
  const agent = start();
  const env = { AGENT_PORT: new URL(await agent.ready()).port };
  expect((await tunnels(['import', 'sample.json'], env)).stdout).toMatch(/^(created {4}\w+\.localhost\n){3}$/);
  expect(brief()).toEqual(IMPORTED);
  const toFile = await tunnels(['export', 'backup.json'], env);
  expect(toFile).toEqual({ code: 0, stdout: '3 tunnels written to backup.json\n', stderr: '' });
  expect(statSync(join(folder, 'backup.json')).mode & 0o777).toBe(0o600);
  const { stdout } = await tunnels(['export', '-'], env);
  expect(stdout).toBe(readFileSync(join(folder, 'backup.json'), 'utf8'));
  expect(existsSync(join(folder, '-'))).toBe(false);
  await tunnels(['delete', 'two'], env);
  const fromInput = ['-c', '"$0" "$1" tunnels import - < backup.json', process.execPath, CLI];
  const imported = await outcomeOf('sh', fromInput, folder, env);
  expect(imported.stdout).toBe('unchanged  one.localhost\ncreated    two.localhost\nunchanged  three.localhost\n');
  // Reports the tunnels that the agent rejects.
  write('far.json', { 'https://far.localhost': { forwards_to: '8.8.8.8:53' } });
  const far = await tunnels(['import', 'far.json'], env);
  expect(far).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(/^failed {5}far\.localhost: .*AGENT_ALLOW_UPSTREAMS/),
  });
});

it('import in a folder without data creates nothing, with or without an agent on the device', async () => {
  const { folder, write, tunnels } = setUp();
  write('sample.json', SAMPLE);
  expect(await tunnels(['import', 'sample.json'])).toEqual({
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(/no data in .*run this in the agent's folder, or set DATA_DIR/),
  });
  const { start } = setUp();
  const env = { AGENT_PORT: new URL(await start().ready()).port };
  expect(await tunnels(['import', 'sample.json'], env)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('uses another folder'),
  });
  expect(readdirSync(folder)).toEqual(['sample.json']);
});

it('import changes nothing when a running agent’s API is unreachable', async () => {
  const { write, tunnels, start } = setUp();
  write('sample.json', SAMPLE);
  await start().ready();
  expect(await tunnels(['import', 'sample.json'], { AGENT_PORT: '1' })).toMatchObject({ code: 3, stdout: '' });
});

it('export rejects a folder, a link and a missing folder', async () => {
  const { folder, tunnels } = setUp();
  mkdirSync(join(folder, 'data'));
  mkdirSync(join(folder, 'folder'));
  symlinkSync('/dev/null', join(folder, 'link'));
  const problems = [];
  for (const file of ['folder', 'link', 'missing/backup.json']) problems.push(await tunnels(['export', file]));
  expect(problems).toEqual([
    { code: 2, stdout: '', stderr: 'device-agent: folder is not a regular file; choose another name\n' },
    { code: 2, stdout: '', stderr: 'device-agent: link is not a regular file; choose another name\n' },
    {
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^device-agent: cannot write missing\/backup\.json: .+\n$/),
    },
  ]);
  expect(readdirSync(folder).sort()).toEqual(['data', 'folder', 'link']);
  expect(readlinkSync(join(folder, 'link'))).toBe('/dev/null');
});

it('exports the last good copy of a damaged file, and fails without a copy', async () => {
  const { folder, write, tunnels } = setUp();
  // A missing data folder means that DATA_DIR is wrong.
  expect(await tunnels(['export'])).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('DATA_DIR') });
  mkdirSync(join(folder, 'data'));
  expect(await tunnels(['export'])).toMatchObject({ code: 0, stdout: '{"version":1,"tunnels":[\n\n]}\n' });
  write('sample.json', SAMPLE);
  await tunnels(['import', 'sample.json']);
  const { stdout } = await tunnels(['export']);
  writeFileSync(join(folder, 'data/tunnels.json.bak'), stdout);
  writeFileSync(join(folder, 'data/tunnels.json'), stdout.slice(0, 50));
  expect((await tunnels(['export'])).stdout).toBe(stdout);
  writeFileSync(join(folder, 'data/tunnels.json.bak'), '');
  expect(await tunnels(['export', 'out.json'])).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no good copy'),
  });
  expect(existsSync(join(folder, 'out.json'))).toBe(false);
});
