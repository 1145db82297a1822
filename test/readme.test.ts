import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readBackup } from '../src/gateway/backup/backup-file.ts';
import { AgentProcess, CLI } from './support/agent-process.ts';
import { listening } from './support/loopback.ts';
import { NO_CURL, unless } from './support/requirements.ts';
import { sharedFolder } from './support/temporary-folder.ts';

const run = promisify(execFile);

/** A page by its headings of the second level, and its blocks of code. */
class Page {
  readonly text: string;

  constructor(readonly file: string) {
    this.text = readFileSync(file, 'utf8');
  }

  /** The text below a heading, up to the next one. */
  chapter(heading: string): string {
    const found = this.text.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0];
    if (found === undefined) throw new Error(`${this.file} has no chapter ${heading}`);
    return found;
  }

  /** All commands of the page, one block each. */
  commands(): string[] {
    return blocks(this.text, 'sh');
  }
}

const blocks = (text: string, language: string) =>
  [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)]
    .filter((match) => match[1] === language)
    .map((match) => match[2] ?? '');

const README = new Page('README.md');
const GETTING_STARTED = new Page('docs/getting-started.md');
const GATEWAY = new Page('docs/gateway.md');
const MANAGEMENT_CLIENT = new Page('docs/management-client.md');

describe('README', () => {
  it('has at most 150 lines', () => {
    expect(README.text.trimEnd().split('\n').length).toBeLessThanOrEqual(150);
  });

  it('calls a program that every build makes executable', async () => {
    expect((await run(CLI, ['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+/);
  });

  it('starts each of its three ways with at most four commands', () => {
    const ways = README.chapter('Three ways to start').split('\n### ').slice(1);
    expect(ways).toHaveLength(3);
    for (const way of ways) {
      const commands = blocks(way, 'sh').join('').replaceAll('\\\n', '').trim().split('\n');
      expect(commands.length).toBeLessThanOrEqual(4);
    }
  });

  it('has no command that the pages in docs/ do not have and explain', () => {
    const pages = ['getting-started', 'raspberry-pi', 'service', 'gateway', 'fleet'].map(
      (name) => new Page(`docs/${name}.md`),
    );
    const explained = pages.flatMap((page) => page.commands()).join('');
    const lines = README.commands().flatMap((block) =>
      block
        .replace(/ +# .*$/gm, '')
        .trim()
        .split('\n'),
    );
    expect(lines.length).toBeGreaterThan(10);
    expect(lines.filter((line) => !explained.includes(line.trim()))).toEqual([]);
  });
});

/** The page's commands as they are printed, on the free ports of this run. */
// A page's commands run in its order.
describe('docs/getting-started.md', { shuffle: false, ...unless(NO_CURL) }, () => {
  const folder = sharedFolder();
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
  const tour = GETTING_STARTED.commands();
  const answers = blocks(GETTING_STARTED.text, 'json');
  const step = (pattern: RegExp) => {
    const found = tour.find((block) => pattern.test(block));
    if (!found) throw new Error(`the page has no command like ${pattern}`);
    return found;
  };

  beforeAll(async () => {
    upstream = createServer((_req, res) => res.end('the upstream'));
    await listening(upstream);
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
  });

  it('POST /tunnels answers what the page shows', async () => {
    const answer = await shell(step(/"forwards_to":"8001"/));
    const [shown = ''] = answers;
    expect(JSON.parse(answer)).toEqual(JSON.parse(here(shown)));
    expect(Object.keys(JSON.parse(answer))).toEqual(['url', 'protocol', 'forwards_to', 'domain', 'policy']);
  });

  it('curl reaches the upstream with the gateway’s CA, and the default policies apply', async () => {
    const answer = await shell(step(/curl -i --cacert/));
    expect(answer).toMatch(/^HTTP\/(2|1\.1) 200/);
    expect(answer).toMatch(/\r\nx-content-type-options: nosniff\r\n/);
    expect(answer).toMatch(/the upstream$/);
  });

  it('GET /tunnels lists the tunnel with its policy, GET /tunnels/{url_part} shows its state', async () => {
    const [item] = JSON.parse(await shell(step(/^curl http:\/\/127\.0\.0\.1:4040\/tunnels\n$/)));
    expect(item).toMatchObject({ url_part: 'device342', forwards_to: `localhost:${ports['8001']}` });
    expect(JSON.parse(item.policy)).toEqual(JSON.parse(readFileSync('defaults/policies.json', 'utf8')));
    const shown = JSON.parse(answers[1] ?? '');
    const detail = JSON.parse(await shell(step(/^curl http.*\/tunnels\/device342/)));
    expect(Object.keys(detail)).toEqual(Object.keys(shown));
    expect(detail).toMatchObject({ url_part: shown.url_part, status: shown.status });
  });

  it('a tunnel with its own policy uses it instead of the default policies', async () => {
    await shell(step(/polite\.localhost/));
    const answer = await shell(step(/curl -i --cacert/).replace('device342', 'polite'));
    expect(answer).toMatch(/\r\nx-greeting: hello\r\n/);
    expect(answer).not.toMatch(/x-served-by/);
  });

  it('the API answers on the agent’s own domain with the API token only', async () => {
    expect(JSON.parse(await shell(step(/Authorization: Bearer/)))).toHaveLength(2);
    const without = step(/Authorization: Bearer/).replace(/-H "Authorization[^"]*"/, '');
    expect(JSON.parse(await shell(without))).toMatchObject({ status_code: 401 });
  });

  it('DELETE ends the tunnel and its URL answers 404', async () => {
    await shell(step(/-X DELETE/));
    expect(await shell(step(/curl -i --cacert/))).toMatch(/^HTTP\/(2|1\.1) 404/);
  });

  it('a tcp tunnel gets a port at the gateway', async () => {
    // Not every machine that runs this test has an SSH server.
    const { notice: _, ...answer } = JSON.parse(await shell(step(/"protocol":"tcp"/)));
    const shown = JSON.parse(answers[2] ?? '');
    const url = expect.stringMatching(/^tcp:\/\/localhost:20\d{3}$/);
    expect(answer).toEqual({ ...shown, url, domain: answer.url.replace('tcp://', '') });
    expect(shown).toMatchObject({ url: `tcp://${shown.domain}` });
  });

  it('the commands of the command line work in the order of a day', async () => {
    const commands = (blocks(GETTING_STARTED.chapter('Use the command line'), '')[0] ?? '')
      .split('\n')
      .filter((line) => /^device-agent (http|tunnels) /.test(line))
      .map((line) => line.split(/\s{2,}|\(/)[0] ?? '');
    expect(commands).toHaveLength(6);
    const [start, list, show, remove, backUp, restore] = commands;
    const outputs: string[] = [];
    // The page has the backup after the end of the tunnel that it would be a backup of.
    for (const command of [start, list, show, backUp, remove, restore]) {
      outputs.push(await shell(`${command}`.replace('device-agent', `"${process.execPath}" "${CLI}"`)));
    }
    expect(outputs[0]).toContain(`https://device342.localhost:${ports['8443']} -> localhost:${ports['8001']}`);
    expect(outputs[1]).toMatch(/NAME +STATE +URL +FORWARDS TO +UPSTREAM +REQUESTS +LAST\n/);
    expect(outputs[2]).toMatch(/Status: +online since/);
    expect(outputs[3]).toMatch(/ written to backup\.json\n$/);
    expect(outputs[4]).toBe('');
    expect(outputs[5]).toContain('created    device342.localhost\n');
  });
});

/** Gateway, laptop and device have a folder each. */
describe('docs/gateway.md and docs/management-client.md', { shuffle: false, ...unless(NO_CURL) }, () => {
  const [, trial, , createKey, setup, look, backup] = GATEWAY.commands();
  const root = sharedFolder();
  const folder = (name: string) => {
    const path = join(root, name);
    mkdirSync(path, { recursive: true });
    return path;
  };
  let gateway: AgentProcess;
  let device: AgentProcess | undefined;
  /** Replaces the page's example addresses with those of this run. */
  let replacements: [string, string][];

  const shell = async (command: string | undefined, cwd: string) => {
    const here = replacements.reduce((result, [from, to]) => result.replaceAll(from, to), String(command));
    const script = `device-agent() { "${process.execPath}" "${CLI}" "$@"; }\n${here}`;
    return (await run('bash', ['-c', script], { cwd, env: { PATH: process.env.PATH } })).stdout;
  };
  const exports = () => setup?.match(/^export .*$/gm)?.join('\n');

  beforeAll(async () => {
    const [prepare, start] = String(trial).split('\n');
    expect(start).toBe('device-agent gateway');
    replacements = [['init', 'init --https-port 0 --http-port 0']];
    expect(await shell(prepare, folder('server'))).toMatch(/^Gateway gateway\.localhost: settings written/);
    gateway = AgentProcess.start(folder('server'), {}, ['gateway']);
    const up = await gateway.logged('gateway listening');
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
  });

  it('setup prepares the site and prints the settings that the page shows', async () => {
    const output = await shell(setup, folder('laptop'));
    const shown = (blocks(GATEWAY.chapter('Prepare a site'), '')[0] ?? '').trim().split('\n');
    const printed = output.trim().split('\n').slice(-shown.length);
    const [token, ...others] = shown.map((line) => line.replace(...(replacements[1] as [string, string])));
    expect(printed.slice(1)).toEqual(others);
    expect(printed[0]).toMatch(new RegExp(`^${token?.replace('<shown once>', '\\w{27}_\\w+')}$`));
    writeFileSync(join(folder('device'), '.env'), printed.join('\n'));
  });

  it('an agent with these settings is online, and the API lists it', async () => {
    device = AgentProcess.start(folder('device'));
    await device.ready();
    const answer = JSON.parse(await shell(`${exports()}\n${look}`, folder('laptop')));
    expect(answer.tunnel_sessions).toHaveLength(1);
  });

  it('gateway backup writes a sound backup', async () => {
    await shell(backup, folder('server'));
    const { manifest } = readBackup(join(folder('server'), 'gateway-backup.tar.gz'));
    expect(manifest.domain).toBe('gateway.localhost');
  });

  it('the program and the example of the management client run', async () => {
    const [program = ''] = blocks(MANAGEMENT_CLIENT.text, 'js');
    const file = join(folder('laptop'), 'gateway-ca.pem');
    const env = `${exports()?.replace('gateway-ca.pem', file)}`;
    // The package finds itself by its name from within the checkout alone.
    writeFileSync(join(root, 'program.mjs'), program);
    const shown = await shell(`${env}\n"${process.execPath}" --input-type=module < ${join(root, 'program.mjs')}`, '.');
    expect(shown).toMatch(
      /^\*\.siteb\.example\.com CNAME \S+\n_acme-challenge\.siteb\.example\.com CNAME \S+\n127\.0\.0\.1 /,
    );
    const [example = ''] = MANAGEMENT_CLIENT.commands();
    expect(await shell(`${env}\n${example.replace('node', `"${process.execPath}"`)}`, '.')).toMatch(
      /^authtoken: \w{27}_\w+$/m,
    );
  });
});
