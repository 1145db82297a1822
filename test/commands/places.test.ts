import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { agentPlace, type CommandCaller, gatewayPlace, requireNoService } from '../../src/commands/settings-place.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, unitFileOf } from '../../src/service/service.ts';
import { AgentProcess, deviceAgent, outcomeOf } from '../support/agent-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** A machine with both services, and a user in a folder with these files. */
function beside(files: Record<string, string> = {}, more: Partial<CommandCaller> = {}): CommandCaller {
  const [root, folder] = [temporaryFolder(), temporaryFolder()];
  const write = (path: string, text: string) => {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  };
  for (const service of [AGENT_SERVICE, GATEWAY_SERVICE]) write(root + unitFileOf(service), '');
  for (const [name, text] of Object.entries(files)) write(join(folder, name), text);
  return { env: {}, folder, isRoot: false, root, ...more };
}

const OF_A_SHOP = { '.env': 'PORT=3000\nDATA_DIR=./storage\nLOG_LEVEL=verbose\n', 'data/orders.csv': '' };

it.each([
  ['an empty folder', {}],
  ['the folder of another program', OF_A_SHOP],
])('in %s, commands and starts are about the installed service', (_what, files) => {
  expect(agentPlace('api', beside(files)).isService).toBe(true);
  const { isService, env, folder } = agentPlace('data', beside(files, { isRoot: true }));
  expect([isService, env.DATA_DIR, folder]).toEqual([true, expect.stringMatching(/device-agent$/), env.DATA_DIR]);
  for (const place of [agentPlace, gatewayPlace])
    expect(() => place('data', beside(files))).toThrow(
      /only root can use that of the service device-agent(-gateway)?: run /,
    );
  expect(() => requireNoService(AGENT_SERVICE, beside(files))).toThrow(
    /service device-agent: start it with sudo systemctl start device-agent, .* DATA_DIR=data device-agent run$/,
  );
  expect(() => requireNoService(GATEWAY_SERVICE, beside(files))).toThrow(/systemctl start device-agent-gateway/);
});

it.each<[string, Record<string, string>, Partial<CommandCaller>]>([
  ['data of an agent', { 'data/lock/x': '' }, {}],
  ['saved tunnels', { 'data/tunnels.json': '{"version":1,"tunnels":[]}' }, {}],
  ['a port in .env', { '.env': 'AGENT_PORT=4141\n' }, {}],
  ['DATA_DIR in the environment', {}, { env: { DATA_DIR: 'data' } }],
])('with %s, they are about the agent of the folder', (_what, files, more) => {
  const caller = beside(files, more);
  for (const needs of ['api', 'data'] as const) expect(agentPlace(needs, caller).isService).toBe(false);
  expect(() => requireNoService(AGENT_SERVICE, caller)).not.toThrow();
});

it('an agent in the folder of a project leaves its files alone, and git takes none of the keys', async () => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'storage'));
  const seats = '{"tunnels": ["A3", "A7"]}';
  writeFileSync(join(folder, 'storage/tunnels.json'), seats);
  writeFileSync(join(folder, '.env'), `PORT=3000\nLOG_LEVEL=verbose\nDATA_DIR=./storage\n`);
  const agent = AgentProcess.inTest(folder);
  const { port } = new URL(await agent.ready());
  expect(agent.lines).toContainEqual(
    expect.objectContaining({ reason: expect.stringMatching(/DATA_DIR in line 3 of .* DEVICE_AGENT_DATA_DIR/) }),
  );
  const command = (...args: string[]) => deviceAgent(args, folder, { AGENT_PORT: port });
  expect(await command('http', '3000', '-d', 'shop.localhost')).toMatchObject({ code: 0 });
  const git = (...args: string[]) => outcomeOf('git', args, folder);
  await git('init', '--quiet');
  expect((await git('add', '--all', '--dry-run')).stdout).toBe("add '.env'\nadd 'storage/tunnels.json'\n");
  expect(readdirSync(join(folder, 'data'))).toContain('api-token');
  expect([readdirSync(join(folder, 'storage')), readFileSync(join(folder, 'storage/tunnels.json'), 'utf8')]).toEqual([
    ['tunnels.json'],
    seats,
  ]);
});

it('an agent whose settings come from .env says which', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, '.env'), 'NGROK_AUTHTOKEN=t\nNGROK_SERVER_ADDR=127.0.0.1:9\n');
  const agent = AgentProcess.inTest(folder);
  expect(await agent.logged('settings read from the current folder')).toMatchObject({
    file: join(folder, '.env'),
    settings: ['NGROK_AUTHTOKEN', 'NGROK_SERVER_ADDR'],
  });
});

it.each([
  ['npx', { npm_config_user_agent: 'npm/11.4.2 node/v24.4.0 linux x64' }, 'npx device-agent run'],
  [
    'a container',
    { DEVICE_AGENT_COMMAND: 'docker compose exec agent node cli.js' },
    'docker compose exec agent node cli.js run',
  ],
])('without an agent, a command of %s names the start as it is typed there', async (_what, env, typed) => {
  const unset = { DEVICE_AGENT_COMMAND: '', AGENT_PORT: '9', ...env };
  const { code, stderr } = await deviceAgent(['tunnels'], temporaryFolder(), unset);
  expect([code, stderr]).toEqual([3, expect.stringMatching(new RegExp(`; start it with: ${typed}\n$`))]);
});
