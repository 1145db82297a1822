import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { loadManagementSettings } from '../../src/settings/management-settings.ts';
import { lineProblems, unknownSettings } from '../../src/settings/parse-settings.ts';
import { readSettingsFile } from '../../src/settings/settings-file.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';

/** A folder with these lines in its `.env`. */
function withDotenv(...lines: string[]): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, '.env'), `${lines.join('\n')}\n`);
  return folder;
}

/** A secret for another program, which is one line as well. */
const FILE_OF_ANOTHER = join(sharedFolder(), 'npmrc');
writeFileSync(FILE_OF_ANOTHER, '//registry.example/:_authToken=secret');

const OF_A_SHOP = ['DATABASE_URL=postgres://shop', 'LOG_LEVEL=verbose', 'DATA_DIR=./storage', 'HTTPS_PROXY=proxy'];

it('the .env of another program does not set the level, the folder or a proxy of ours, and each line names the other name', () => {
  const folder = withDotenv(...OF_A_SHOP);
  expect(loadSettings({}, folder)).toMatchObject({ log: { level: 'info' }, dataDir: join(folder, 'data') });
  const told = lineProblems({}, folder).map(({ detail, advice }) => `${detail}; ${advice}`);
  expect(told).toEqual(
    [
      ['LOG_LEVEL', 2],
      ['DATA_DIR', 3],
      ['HTTPS_PROXY', 4],
    ].map(([name, line]) =>
      expect.stringMatching(
        new RegExp(`^${name} in line ${line} of .*/\\.env does not count: .*name it DEVICE_AGENT_${name}$`),
      ),
    ),
  );
});

it('our own names count in the .env of another program, and generic ones with the prefix', () => {
  const folder = withDotenv(
    ...OF_A_SHOP,
    'AGENT_PORT=4141',
    'DEVICE_AGENT_LOG_LEVEL=debug',
    'DEVICE_AGENT_DATA_DIR=.agent',
  );
  const settings = loadSettings({}, folder);
  expect(settings).toMatchObject({ api: { port: 4141 }, log: { level: 'debug' }, dataDir: join(folder, '.agent') });
});

it.each([
  ['NGROK_SERVER_ADDR=evil.example:443', { NGROK_AUTHTOKEN: 'secret' }, loadSettings],
  ['MANAGEMENT_API_URL=https://evil.example', { MANAGEMENT_API_KEY: 'secret' }, loadManagementSettings],
  // The agent makes an API token of its own.
  ['AGENT_HOST=192.0.2.1', {}, loadSettings],
  [`NGROK_SERVER_ADDR=evil.example:443\nNGROK_AUTHTOKEN_FILE=${FILE_OF_ANOTHER}`, {}, loadSettings],
] as const)('%s in the .env of another program does not choose where a secret is sent', (line, secrets, load) => {
  const [name = '', value = ''] = line.split(/[=\n]/);
  const [env, folder] = [secrets as NodeJS.ProcessEnv, withDotenv(...OF_A_SHOP, line)];
  expect(() => load(env, folder)).toThrow(new RegExp(`^${name} in line 5 of .*/\\.env would choose .* set ${name} in`));
  expect(() => load({ ...env, [name]: value }, folder)).not.toThrow();
  expect(() => load(env, withDotenv(line))).not.toThrow();
});

it('the .env of another program may have an authtoken with its gateway, and an address of this machine', () => {
  const both = withDotenv(...OF_A_SHOP, 'NGROK_SERVER_ADDR=gateway.example.com:443', 'NGROK_AUTHTOKEN=t');
  expect(loadSettings({}, both)).toMatchObject({ gateway: { serverAddr: 'gateway.example.com:443' } });
  writeFileSync(join(both, 'token'), 't');
  writeFileSync(
    join(both, '.env'),
    `${OF_A_SHOP.join('\n')}\nNGROK_SERVER_ADDR=g.example:443\nNGROK_AUTHTOKEN_FILE=token`,
  );
  expect(loadSettings({}, both)).toMatchObject({ gateway: { serverAddr: 'g.example:443' } });
  for (const host of ['0.0.0.0', '::', 'localhost', '127.0.0.2']) {
    const folder = withDotenv(...OF_A_SHOP, `AGENT_HOST=${host}`);
    expect(loadSettings({ AGENT_API_TOKEN: 'a-token-of-16-characters' }, folder)).toMatchObject({ api: { host } });
  }
});

it('what a device got when it joined does not count when a repository may have brought it', () => {
  const folder = temporaryFolder();
  const file = join(folder, 'data/joined.env');
  mkdirSync(join(folder, 'data'));
  writeFileSync(file, 'NGROK_SERVER_ADDR=gateway.example.com:443\nNGROK_AUTHTOKEN=t\n', { mode: 0o644 });
  expect(() => loadSettings({}, folder)).toThrow(`${file} leads to a gateway`);
  chmodSync(file, 0o600);
  expect(loadSettings({}, folder)).toMatchObject({ gateway: { serverAddr: 'gateway.example.com:443' } });
});

it('an invalid value in .env is reported with file and line, one in the environment without', () => {
  const folder = withDotenv(...OF_A_SHOP, 'AGENT_PORT=many', 'DEVICE_AGENT_LOG_LEVEL=loud');
  expect(() => loadSettings({ AGENT_CONNECTOR: 'odd' }, folder)).toThrow(
    /CONNECTOR="odd": [\s\S]* AGENT_PORT="many" in line 5 of \/.*\/\.env: [\s\S]* LOG_LEVEL="loud" in line 6 of /,
  );
});

it.each([
  ['settings alone', ['NGROK_AUTHTOKEN=t', 'LOG_LEVEL=debug', 'DATA_DIR=state']],
  ['a copy of .env.example', ['# Port of the local API.', '#AGENT_PORT=4040', 'LOG_LEVEL=debug', 'DATA_DIR=state']],
  ['a misspelt setting', ['AGENT_PROT=4141', 'LOG_LEVEL=debug', 'DATA_DIR=state']],
  ['proxies in lower case', ['AGENT_PORT=0', 'https_proxy=http://proxy:1', 'LOG_LEVEL=debug', 'DATA_DIR=state']],
])('in a .env with %s, generic names count', (_what, lines) => {
  const folder = withDotenv(...lines);
  expect(loadSettings({}, folder)).toMatchObject({ log: { level: 'debug' }, dataDir: join(folder, 'state') });
  expect(lineProblems({}, folder)).toEqual([]);
});

it('DATA_DIR in the .env of another program counts, with a warning, for a folder that has our data already', () => {
  const folder = withDotenv('PORT=3000', 'DATA_DIR=state');
  mkdirSync(join(folder, 'state/lock'), { recursive: true });
  expect(loadSettings({}, folder).dataDir).toBe(join(folder, 'state'));
  expect(lineProblems({}, folder)).toMatchObject([
    { detail: expect.stringMatching(/^DATA_DIR in line 2 .* only because/) },
  ]);
});

it('generic names count in the environment and in SETTINGS_FILE, those with the prefix more', () => {
  const folder = withDotenv('PORT=3000');
  writeFileSync(join(folder, 'ours.env'), 'LOG_FORMAT=json\nOTHER=1\n');
  const env = { LOG_LEVEL: 'warn', DEVICE_AGENT_LOG_LEVEL: 'debug', DATA_DIR: 'state', SETTINGS_FILE: 'ours.env' };
  expect(loadSettings(env, folder)).toMatchObject({
    log: { level: 'debug', format: 'json' },
    dataDir: join(folder, 'state'),
  });
});

it('a line that is not NAME=value is reported by its number, without its content; one of another program is not', () => {
  const ours = withDotenv('NGROK_AUTHTOKEN 2abc', '# a comment', '', 'export AGENT_PORT=0', 'AGENT_SITE="a', 'b"');
  expect(lineProblems({}, ours)).toEqual([
    { detail: `line 1 of ${join(ours, '.env')} is not NAME=value`, advice: 'correct or remove it', isMistake: true },
  ]);
  const theirs = withDotenv('PORT=3000', 'source other.env', 'AGENT_PORT 4141');
  expect(lineProblems({}, theirs).map(({ detail }) => detail)).toEqual([
    `line 3 of ${join(theirs, '.env')} is not NAME=value`,
  ]);
});

it('names of another program that only begin like ours are not called misspelt in its .env', () => {
  expect(unknownSettings({}, withDotenv('PORT=1', 'AGENT_MODEL=large', 'GATEWAY_RETRIES=3', 'AGENT_PROT=1'))).toEqual([
    'AGENT_PROT',
  ]);
});

it('a folder with the name .env has no settings', () => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, '.env'));
  expect(readSettingsFile(join(folder, '.env'), 'any').texts).toEqual({});
});
