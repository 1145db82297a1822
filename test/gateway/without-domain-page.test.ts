/** What docs/without-domain.md says, typed, on this machine's loopback address. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, CLI, type Outcome, outcomeOf } from '../support/agent-process.ts';
import { freePorts } from '../support/free-ports.ts';
import { startHttpService } from '../support/http-service.ts';
import { NO_CURL, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const [setUp = '', onDevice = '', open = '', withDomain = ''] = [
  ...readFileSync('docs/without-domain.md', 'utf8').matchAll(/^```sh\n([\s\S]*?)^```$/gm),
].map(([, block = '']) => block);

/** Own API of the device, two tunnels, and none to spare. */
const PORTS = 3;

async function start(ip: string) {
  const { first } = await freePorts(4 + PORTS + 1);
  const [https = 0, http = 0, api = 0, tcp = 0, named = 0] = Array.from({ length: 5 }, (_, at) => first + at);
  const folders = { server: temporaryFolder(), device: temporaryFolder() };
  const service = await startHttpService((_req, res) => void res.end('here'));
  onTestFinished(() => service.close());
  const ports = {
    GATEWAY_HTTPS_PORT: String(https),
    GATEWAY_HTTP_PORT: String(http),
    GATEWAY_TCP_PORTS: String(tcp),
    GATEWAY_HTTPS_PORTS: `${named}-${named + PORTS - 1}`,
    AGENT_PORT: String(api),
  };
  const host = ip.includes(':') ? `[${ip}]` : ip;
  const here = (text: string) =>
    text
      .replaceAll('203.0.113.5', host)
      .replace(`--ip ${host}`, `--ip ${ip}`)
      .replaceAll('sudo ', '')
      .replace('gateway init', 'gateway init --no-service')
      .replaceAll('20000-20099', String(tcp))
      .replaceAll('ca.pem', join(folders.server, 'data', 'gateway', 'ca.pem'))
      .replace(/\b8001\b/, new URL(service.url).port)
      .replaceAll(/(^|\| )device-agent/gm, `$1"${process.execPath}" "${CLI}"`);
  const type = (text: string, at: keyof typeof folders): Promise<Outcome> =>
    outcomeOf('bash', ['-ec', here(text)], folders[at], ports);
  const gateway = async () => {
    const started = AgentProcess.start(folders.server, ports, ['gateway']);
    onTestFinished(async () => void (await started.end('SIGKILL')));
    await started.logged('gateway listening');
    return started;
  };
  const device = async (env: Record<string, string>, ...args: string[]) => {
    const started = AgentProcess.start(folders.device, { ...ports, ...env }, args);
    onTestFinished(async () => void (await started.end('SIGKILL')));
    await started.ready();
    return started;
  };
  return { type, gateway, device, host, https };
}

it.each(['127.0.0.1', '::1'])(
  'a gateway at %s is set up as its page says, and URLs outlive all',
  unless(NO_CURL),
  async (ip) => {
    const { type, gateway, device, host, https } = await start(ip);
    const [init = '', invite = ''] = setUp.trim().split('\n');
    expect(await type(init, 'server')).toMatchObject({ code: 0, stdout: expect.stringContaining('https and tls') });
    let server = await gateway();
    const invited = await type(invite, 'server');
    const code = /^join-\S+$/m.exec(invited.stdout)?.[0] ?? invited.stderr;

    const [join = '', tunnel = ''] = onDevice.trim().split('\n');
    const [, options = ''] = /join - (.*)$/.exec(join) ?? [];
    let agent = await device({}, 'join', code, '--no-service', ...options.split(' '));
    const [url = ''] = (await type(tunnel, 'device')).stdout.split(' ');
    expect(url).toMatch(new RegExp(`^https://${host.replaceAll(/[[\].]/g, '\\$&')}:\\d+$`));
    const curl = () => type(open.replace(/https:\S+/, url), 'device');
    expect(await curl()).toMatchObject({ code: 0, stdout: 'here' });

    const own = await type('device-agent status --json', 'device');
    expect(JSON.parse(own.stdout)).toMatchObject({ remote_api: { url: expect.stringContaining(`https://${host}:`) } });
    const tcp = await type('device-agent tunnels start 8001 --protocol tcp', 'device');
    expect(tcp.stdout).toContain(`tcp://${host}:`);
    expect((await type('device-agent tunnels start 8001', 'device')).code).toBe(0);
    const full = await type('device-agent tunnels start 8001', 'device');
    expect(full).toMatchObject({ code: 1, stderr: expect.stringContaining('widen GATEWAY_HTTPS_PORTS') });

    await server.end('SIGKILL');
    server = await gateway();
    await until(async () => (await curl()).stdout === 'here', 'the tunnel after the gateway was killed', {
      everyMs: 100,
    });
    await agent.end('SIGKILL');
    agent = await device({ AGENT_CONNECTOR: 'sdk' });
    expect(await curl()).toMatchObject({ code: 0, stdout: 'here' });
    expect((await type('device-agent tunnels list', 'device')).stdout).toContain(url);
    expect(await type('device-agent gateway doctor', 'server')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`${host}:${https} leads to this gateway`),
    });

    const [change = ''] = withDomain.trim().split('\n');
    expect(await type(change, 'server')).toMatchObject({ code: 0 });
    await server.end();
    await gateway();
    await until(async () => (await curl()).stdout === 'here', 'the tunnel at a gateway with a domain', {
      everyMs: 100,
    });
    expect((await type("device-agent gateway invite --site '*.hall.gateway.example.com'", 'server')).code).toBe(0);
  },
);
