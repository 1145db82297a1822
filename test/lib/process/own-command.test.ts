import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ownCommand, rootCommand, type Start, shellWord } from '../../../src/lib/process/own-command.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

/** A package with its program, and a folder of a PATH that has a link to it. */
function installed() {
  const root = temporaryFolder();
  const program = join(root, 'package/dist/cli.js');
  const bin = join(root, 'bin');
  mkdirSync(join(root, 'package/dist'), { recursive: true });
  mkdirSync(bin);
  writeFileSync(program, '');
  symlinkSync(program, join(bin, 'device-agent'));
  const start = (env: NodeJS.ProcessEnv, folder = root): Start => ({
    ...{ env, folder, argv: ['/opt/node/bin/node', program], isRoot: false },
  });
  return { root, program, bin, start };
}

it('a program that a shell finds is typed by its name', () => {
  const { bin, start } = installed();
  expect(ownCommand('http 8001', start({ PATH: `/nowhere:${bin}` }))).toBe('device-agent http 8001');
});

it('a program that a package runner has started is typed with that runner, also when it has added to PATH', () => {
  const { bin, start } = installed();
  const by = (agent: string) => ownCommand('status', start({ PATH: bin, npm_config_user_agent: agent }));
  expect(by('npm/11.4.2 node/v24.4.0 linux x64 workspaces/false')).toBe('npx device-agent status');
  expect(by('pnpm/10.1.0 npm/? node/v24.4.0 linux x64')).toBe('pnpm exec device-agent status');
});

it('a program of a package that npx has fetched is typed with what npx was given, not with a name in the registry', () => {
  const folder = join(temporaryFolder(), '_npx/eccec793f4024a78');
  mkdirSync(folder, { recursive: true });
  const start = {
    ...{ env: { npm_config_user_agent: 'npm/10.8.2 node/v20.20.2 linux x64' }, folder: '/', isRoot: false },
    argv: ['/opt/node/bin/node', join(folder, 'node_modules/.bin/device-agent')],
  };
  expect(ownCommand('status', start)).toBe('npx device-agent status');
  writeFileSync(join(folder, 'package.json'), '{"_npx": {"packages": ["./device-agent-0.1.0.tgz"]}}');
  expect(ownCommand('status', start)).toBe('npx ./device-agent-0.1.0.tgz status');
});

it('a program that no shell finds is typed with node and its path, from the folder where that is shorter', () => {
  const { root, program, start } = installed();
  expect(ownCommand('', start({ PATH: '/nowhere' }, join(root, 'package')))).toBe('node dist/cli.js');
  expect(ownCommand('status', start({}, '/elsewhere'))).toBe(`node ${program} status`);
});

it('another program of the name first in PATH is not this one', () => {
  const { bin, start, root } = installed();
  mkdirSync(join(root, 'older'));
  writeFileSync(join(root, 'older/device-agent'), '');
  expect(ownCommand('', start({ PATH: `${join(root, 'older')}:${bin}` }, root))).toBe('node package/dist/cli.js');
});

it('DEVICE_AGENT_COMMAND says how it is typed outside of a container, where nobody is asked for sudo', () => {
  const { start } = installed();
  const inside = start({ DEVICE_AGENT_COMMAND: 'docker compose exec device-agent node dist/cli.js' });
  expect(ownCommand('tunnels', inside)).toBe('docker compose exec device-agent node dist/cli.js tunnels');
  expect(rootCommand('join -', inside)).toBe('docker compose exec device-agent node dist/cli.js join -');
});

it('a command for root has sudo and full paths, unless sudo finds the program or the person is root', () => {
  const { bin, program, start } = installed();
  expect(rootCommand('join -', start({ PATH: bin }))).toBe(`sudo /opt/node/bin/node ${program} join -`);
  expect(rootCommand('join -', { ...start({ PATH: bin }), isRoot: true })).toBe('device-agent join -');
});

it('a word for a shell is quoted where the shell would change it', () => {
  expect(shellWord('/opt/node/bin/node')).toBe('/opt/node/bin/node');
  expect(shellWord("*.it's")).toBe("'*.it'\\''s'");
});
