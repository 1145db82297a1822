import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Database } from '../src/gateway/store/database.ts';
import { AgentProcess, CLI } from './support/agent-process.ts';
import { NO_CURL, unless } from './support/requirements.ts';
import { makeFolder } from './support/temporary-folder.ts';

const run = promisify(execFile);
const readme = readFileSync('README.md', 'utf8');

/** The text between a heading and the next one of the same level. */
const chapter = (heading: string) => readme.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
const blocks = (text: string, language: string) =>
  [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)]
    .filter((match) => match[1] === language)
    .map((match) => match[2] ?? '');

/** README's commands as they stand there, on the free ports that this run got. */
describe('the tour in README', unless(NO_CURL), () => {
  const [folder, removeFolder] = makeFolder();
  let agent: AgentProcess;
  let upstream: Server;
  let ports: Record<string, string>;

  const here = (text: string) => text.replace(/\b(4040|8443|8001)\b/g, (port) => ports[port] ?? port);
  const shell = async (command: string) => {
    const { stdout } = await run('bash', ['-c', here(command)], {
      cwd: folder,
      env: { ...process.env, AGENT_PORT: ports['4040'] },
    });
    return stdout;
  };
  const tour = blocks(chapter('A tour with curl'), 'sh');
  const step = (pattern: RegExp) => {
    const found = tour.find((block) => pattern.test(block));
    if (!found) throw new Error(`README's tour has no command like ${pattern}`);
    return found;
  };

  beforeAll(async () => {
    upstream = createServer((_req, res) => res.end('the service'));
    await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
    agent = AgentProcess.start(folder);
    const api = await agent.ready();
    const own = new URL(String((await agent.logged('remote API online')).url));
    ports = {
      4040: new URL(api).port,
      8443: own.port,
      8001: String((upstream.address() as AddressInfo).port),
    };
  });
  afterAll(async () => {
    await agent.end();
    upstream.close();
    removeFolder();
  });

  it('opens the tunnel and answers what README shows', async () => {
    const answer = await shell(step(/"forwards_to":"8001"/));
    const [shown = ''] = blocks(chapter('A tour with curl'), 'json');
    expect(JSON.parse(answer)).toEqual(JSON.parse(here(shown)));
    expect(Object.keys(JSON.parse(answer))).toEqual(['url', 'protocol', 'forwards_to', 'domain', 'policy']);
  });

  it('reaches the service with curl and the gateway’s authority, default policy applied', async () => {
    const answer = await shell(step(/curl -i --cacert/));
    expect(answer).toMatch(/^HTTP\/(2|1\.1) 200/);
    expect(answer).toMatch(/\r\nx-content-type-options: nosniff\r\n/);
    expect(answer).toMatch(/the service$/);
  });

  it('lists it with its policy as a JSON string, and shows its state', async () => {
    const [item] = JSON.parse(await shell(step(/^curl http:\/\/127\.0\.0\.1:4040\/tunnels\n$/)));
    expect(item).toMatchObject({ url_part: 'device342', forwards_to: `localhost:${ports['8001']}` });
    expect(JSON.parse(item.policy)).toEqual(JSON.parse(readFileSync('defaults/policies.json', 'utf8')));
    expect(JSON.parse(await shell(step(/^curl http.*\/tunnels\/device342/)))).toMatchObject({ status: 'online' });
  });

  it('uses a policy that was sent instead of the default policies', async () => {
    await shell(step(/polite\.localhost/));
    const answer = await shell(step(/curl -i --cacert/).replace('device342', 'polite'));
    expect(answer).toMatch(/\r\nx-greeting: hello\r\n/);
    expect(answer).not.toMatch(/x-served-by/);
  });

  it('answers on the agent’s own domain to who has the token', async () => {
    expect(JSON.parse(await shell(step(/Authorization: Bearer/)))).toHaveLength(2);
    const without = step(/Authorization: Bearer/).replace(/-H "Authorization[^"]*"/, '');
    expect(JSON.parse(await shell(without))).toMatchObject({ status_code: 401 });
  });

  it('deletes the tunnel, whose URL stops answering', async () => {
    await shell(step(/-X DELETE/));
    expect(await shell(step(/curl -i --cacert/))).toMatch(/^HTTP\/(2|1\.1) 404/);
  });

  it('gives a service that speaks no HTTP a port of its own', async () => {
    const answer = JSON.parse(await shell(step(/"protocol":"tcp"/)));
    const shown = JSON.parse(blocks(chapter('A tour with curl'), 'json')[1] ?? '');
    const url = expect.stringMatching(/^tcp:\/\/localhost:20\d{3}$/);
    expect(answer).toEqual({ ...shown, url, domain: answer.url.replace('tcp://', '') });
    expect(shown).toMatchObject({ url: `tcp://${shown.domain}` });
  });

  it('does the same with the command line', async () => {
    const commands = (blocks(chapter('The command line'), '')[0] ?? '')
      .split('\n')
      .filter((line) => line.startsWith('device-agent tunnels'))
      .map((line) => line.split(/\s{2,}|\(/)[0] ?? '');
    expect(commands).toHaveLength(6);
    const [list, start, show, remove, backUp, restore] = commands;
    const outputs: string[] = [];
    // In README's order the tunnel is listed before it is started.
    for (const command of [start, list, show, backUp, remove, restore]) {
      outputs.push(await shell(`${command}`.replace('device-agent', `"${process.execPath}" "${CLI}"`)));
    }
    expect(outputs[0]).toContain(`https://device342.localhost:${ports['8443']} -> localhost:${ports['8001']}`);
    expect(outputs[1]).toMatch(/NAME +URL +PROTOCOL +FORWARDS TO\n/);
    expect(outputs[2]).toMatch(/Status: +online since/);
    expect(outputs[3]).toMatch(/ written to backup\.json\n$/);
    expect(outputs[4]).toBe('');
    expect(outputs[5]).toContain('created    device342.localhost\n');
  });
});

/** The chapter on a gateway of one's own, with gateway, laptop and device in folders of their own. */
describe('the chapter on a gateway of one’s own', unless(NO_CURL), () => {
  const text = chapter('A gateway of your own');
  const [start, createKey, setup, look, backup] = blocks(text, 'sh');
  const [root, removeRoot] = makeFolder();
  const folder = (name: string) => {
    const path = join(root, name);
    mkdirSync(path, { recursive: true });
    return path;
  };
  let gateway: AgentProcess;
  let device: AgentProcess | undefined;
  /** What stands for the README's examples here. */
  let replacements: [string, string][];

  const shell = async (command: string | undefined, cwd: string) => {
    const here = replacements.reduce((result, [from, to]) => result.replaceAll(from, to), String(command));
    const script = `device-agent() { "${process.execPath}" "${CLI}" "$@"; }\n${here}`;
    return (await run('bash', ['-c', script], { cwd, env: { PATH: process.env.PATH } })).stdout;
  };
  const exports = () => setup?.match(/^export .*$/gm)?.join('\n');

  beforeAll(async () => {
    expect(start).toBe('device-agent gateway\n');
    gateway = AgentProcess.start(folder('server'), {}, ['gateway']);
    const up = await gateway.logged('the gateway is up');
    replacements = [
      ['https://api.gateway.example.com', String(up.api)],
      ['connect.gateway.example.com:443', String(up.agents)],
      ['device-agent setup', 'device-agent setup --no-wait'],
    ];
    const ca = join(folder('server'), 'data/gateway/ca.pem');
    for (const name of ['laptop', 'device']) copyFileSync(ca, join(folder(name), 'gateway-ca.pem'));
    replacements.push(['<the key>', (await shell(createKey, folder('server'))).trim()]);
  });
  afterAll(async () => {
    await device?.end();
    await gateway.end();
    removeRoot();
  });

  it('names only settings that there are', () => {
    const [env = ''] = blocks(text, '');
    const names = env
      .trim()
      .split('\n')
      .map((line) => line.split('=')[0]);
    expect(names).toHaveLength(4);
    for (const name of names) expect(readFileSync('.env.example', 'utf8')).toContain(`#${name}=`);
  });

  it('sets the site up, and prints the lines that README shows', async () => {
    const output = await shell(setup, folder('laptop'));
    const shown = (blocks(text, '')[1] ?? '').trim().split('\n');
    const printed = output.trim().split('\n').slice(-shown.length);
    const [token, ...others] = shown.map((line) => line.replace(...(replacements[1] as [string, string])));
    expect(printed.slice(1)).toEqual(others);
    expect(printed[0]).toMatch(new RegExp(`^${token?.replace('<shown once>', '\\w{27}_\\w+')}$`));
    writeFileSync(join(folder('device'), '.env'), printed.join('\n'));
  });

  it('takes the device online with these lines, as the API shows', async () => {
    device = AgentProcess.start(folder('device'));
    await device.ready();
    const answer = JSON.parse(await shell(`${exports()}\n${look}`, folder('laptop')));
    expect(answer.tunnel_sessions).toHaveLength(1);
  });

  it('backs the database up', async () => {
    await shell(backup, folder('server'));
    const copy = Database.open(join(folder('server'), 'gateway-backup.db'));
    expect(copy.problems()).toEqual([]);
    copy.close();
  });

  it('runs the program for developers, and the example', async () => {
    const [program = ''] = blocks(chapter('For developers: the management client'), 'js');
    const file = join(folder('laptop'), 'gateway-ca.pem');
    const env = `${exports()?.replace('gateway-ca.pem', file)}`;
    // The package finds itself by its name from within the checkout alone.
    writeFileSync(join(root, 'program.mjs'), program);
    const shown = await shell(`${env}\n"${process.execPath}" --input-type=module < ${join(root, 'program.mjs')}`, '.');
    expect(shown).toMatch(
      /^\*\.siteb\.example\.com CNAME \S+\n_acme-challenge\.siteb\.example\.com CNAME \S+\n127\.0\.0\.1 /,
    );
    const example = `"${process.execPath}" examples/provision.mjs '*.sitec.example.com' 'site C'`;
    expect(await shell(`${env}\n${example}`, '.')).toMatch(/^authtoken: \w{27}_\w+$/m);
  });
});
