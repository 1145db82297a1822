import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { lineProblems, unknownSettings } from '../../src/settings/parse-settings.ts';
import { readSettingsFile } from '../../src/settings/settings-file.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** A folder with these lines in its `.env`. */
function withDotenv(...lines: string[]): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, '.env'), `${lines.join('\n')}\n`);
  return folder;
}

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
