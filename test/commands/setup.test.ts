import { createServer } from 'node:http';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { addSetupCommand, gatewayOf, tcpAddresses } from '../../src/commands/setup.ts';
import { NO_PROXIES } from '../../src/lib/network/proxy-rules.ts';
import { CLOUD_API } from '../../src/management/transport.ts';
import type { ManagementSettings } from '../../src/settings/management-settings.ts';
import { deviceAgent } from '../support/agent-process.ts';
import { type DnsServer, startDnsServer } from '../support/dns-server.ts';
import { serving } from '../support/loopback.ts';
import { type ManagementServer, startManagementServer } from '../support/management-server.ts';
import { storeCertificate } from '../support/stored-certificates.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

let server: ManagementServer;
let dns: DnsServer;
beforeEach(async () => {
  server = await startManagementServer();
  dns = await startDnsServer();
});
afterEach(() => Promise.all([server.close(), dns.close()]));

async function setup(
  args: string[],
  settings: Partial<ManagementSettings> = {},
): Promise<{ out: string; progress: string }> {
  const out: string[] = [];
  const progress: string[] = [];
  const program = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  addSetupCommand(
    program,
    () => ({
      apiUrl: server.url,
      apiKey: server.apiKey,
      apiCa: null,
      apiCaFile: null,
      proxies: NO_PROXIES,
      serverAddr: 'gw.example.com:4443',
      caCert: null,
      ...settings,
    }),
    {
      print: (text) => out.push(`${text}\n`),
      note: (text) => progress.push(`${text}\n`),
    },
  );
  await program.parseAsync(['setup', '--domain', '*.sitea.example.com', '--bot', 'site A', ...args], { from: 'user' });
  return { out: out.join(''), progress: progress.join('') };
}

describe('device-agent setup', () => {
  it('prints DNS records to paste, the authtoken once, and the lines for .env', async () => {
    const { out } = await setup(['--no-wait', '--ca-cert', 'ca.pem']);
    expect(out).toMatch(/^ {2}\*\.sitea\.example\.com\. 300 IN CNAME \S+\.cname\.gateway\.test\.$/m);
    expect(out).toMatch(/^ {2}_acme-challenge\.sitea\.example\.com\. 300 IN CNAME \S+\.acme\.gateway\.test\.$/m);
    const env = out
      .slice(out.indexOf('.env:') + 5)
      .trim()
      .split('\n');
    expect(env).toEqual([
      expect.stringMatching(/^NGROK_AUTHTOKEN=\w+_\w+$/),
      'NGROK_SERVER_ADDR=gw.example.com:4443',
      'NGROK_CA_CERT=ca.pem',
      'AGENT_DOMAIN=agent.sitea.example.com',
    ]);
  });

  it('derives the gateway’s address from its API, and never leads a device to ngrok’s cloud by accident', async () => {
    const unknown = { serverAddr: null, apiUrl: `${server.url}/` };
    await expect(setup(['--no-wait'], unknown)).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringContaining('--server-addr'),
    });
    expect(server.store.reservedDomains.page(null, 1)).toEqual([]);
    for (const [apiUrl, address] of [
      ['https://api.gw.example.com', 'connect.gw.example.com:443'],
      ['https://api.localhost:8443/', 'connect.localhost:8443'],
    ] as const) {
      expect(gatewayOf({}, { apiUrl, apiCaFile: null, serverAddr: null, caCert: null })?.serverAddr).toBe(address);
    }
    const at = (serverAddr: string) => ({ serverAddr, caCert: null, apiCaFile: null });
    const range = { first: 20_000, last: 20_099 };
    expect(tcpAddresses(range, at('connect.gw.test:443'))).toBe('tcp.gw.test:20000-20099');
    expect(tcpAddresses({ first: 22, last: 22 }, at('connect.localhost:8443'))).toBe('localhost:22');
    expect(() => tcpAddresses(range, at('192.0.2.7:443'))).toThrow(/add --server-addr with a name/);
    expect(() => tcpAddresses(range, null)).toThrow(/gateways of your own/);
    expect(gatewayOf({}, { apiUrl: CLOUD_API, apiCaFile: null, serverAddr: null, caCert: null })).toBeNull();
  });

  it('names the CA file to copy to the device, or to look for', async () => {
    const { out } = await setup(['--no-wait'], { apiCaFile: '/home/me/gateway-ca.pem' });
    expect(out).toMatch(/^# copy \/home\/me\/gateway-ca\.pem to the device, .*\nNGROK_CA_CERT=gateway-ca\.pem$/m);
    expect((await setup(['--no-wait'])).out).toMatch(/^# NGROK_CA_CERT=/m);
  });

  it('sets no AGENT_DOMAIN for a site without a wildcard', async () => {
    const { out } = await setup(['--no-wait', '--domain', 'cam.example.com', '--json']);
    expect(JSON.parse(out)).toMatchObject({ domain: { domain: 'cam.example.com' }, authtoken: { kind: 'created' } });
    expect(JSON.parse(out).env.join(' ')).not.toContain('AGENT_DOMAIN');
  });

  it('waits for DNS and certificate, and shows progress', async () => {
    await setup(['--no-wait']);
    const [domain] = server.store.reservedDomains.page(null, 1);
    if (!domain) throw new Error('no domain');
    await storeCertificate(server.store, domain.id);
    const records = (await server.call('GET', `/reserved_domains/${domain.id}`)).body;
    dns.records.set('*.sitea.example.com', String(records.cname_target));
    dns.records.set('_acme-challenge.sitea.example.com', String(records.acme_challenge_cname_target));
    const { out } = await setup(['--dns-server', dns.address, '--rotate']);
    expect(out).toContain('Waiting up to 30 minutes');
    expect(out).toContain('*.sitea.example.com is in place');
    expect(out).toMatch(/^NGROK_AUTHTOKEN=/m);
    expect(out).not.toContain('not there yet');
  });

  it('a second run says that the authtoken cannot be shown again, and how to replace it', async () => {
    const first = await setup(['--no-wait']);
    const token = /NGROK_AUTHTOKEN=(\S+)/.exec(first.out)?.[1] ?? '';
    const { out } = await setup(['--no-wait']);
    expect(out).toContain('--rotate');
    expect(out).not.toContain(token);
    expect(out).toMatch(/^# NGROK_AUTHTOKEN=$/m);
  });

  it('--rotate names the old authtoken when deleting it failed', async () => {
    const first = await setup(['--no-wait']);
    const old = /cr_\w+/.exec(first.out)?.[0] ?? '';
    server.store.credentials.delete = () => {
      throw new Error('no');
    };
    const { out } = await setup(['--no-wait', '--rotate']);
    expect(out).toMatch(/^NGROK_AUTHTOKEN=\w+_\w+$/m);
    expect(out).toMatch(new RegExp(`cannot delete the replaced authtoken ${old}, which still works`));
  });

  it('--json prints only the result to standard output', async () => {
    const { out, progress } = await setup(['--no-wait', '--json']);
    expect(JSON.parse(out)).toMatchObject({
      domain: { domain: '*.sitea.example.com' },
      bot: { name: 'site A' },
      certificate: 'pending',
      authtoken: { kind: 'created', token: expect.any(String) },
      env: expect.arrayContaining(['AGENT_DOMAIN=agent.sitea.example.com']),
    });
    expect(progress).toContain('bot user');
    expect(progress).not.toContain(JSON.parse(out).authtoken.token);
  });

  it.each<[string, Partial<ManagementSettings>, string[], number, string]>([
    ['no URL is set', { apiUrl: null }, [], 2, 'MANAGEMENT_API_URL'],
    ['no key is set', { apiKey: null }, [], 2, 'MANAGEMENT_API_KEY'],
    ['the URL is none', { apiUrl: 'gateway' }, [], 2, 'MANAGEMENT_API_URL'],
    ['the key is refused', { apiKey: 'not_mine' }, [], 2, 'MANAGEMENT_API_KEY'],
    ['the domain is no hostname', {}, ['--domain', 'a b'], 2, 'a b'],
    ['the service refuses', {}, ['--domain', '*.com'], 1, 'ERR_NGROK_416'],
    ['the service cannot be reached', { apiUrl: 'http://127.0.0.1:1' }, [], 3, '; check MANAGEMENT_API_URL'],
    ['time runs out', {}, ['--timeout', '0.01'], 5, 'run the same command again'],
  ])('fails when %s, with an exit code and a hint', async (_, settings, args, exitCode, hint) => {
    const wait = args.includes('--timeout') ? ['--dns-server', dns.address] : ['--no-wait'];
    await expect(setup([...wait, ...args], settings)).rejects.toMatchObject({
      exitCode,
      message: expect.stringContaining(hint),
    });
  });

  it('a 404 names MANAGEMENT_API_URL', async () => {
    const other = createServer((_request, response) => response.writeHead(404).end('not found'));
    const apiUrl = `http://127.0.0.1:${await serving(other)}`;
    await expect(setup(['--no-wait'], { apiUrl })).rejects.toThrow(/404; check that MANAGEMENT_API_URL/);
  });

  it('the CLI prints errors in one line', async () => {
    const folder = temporaryFolder();
    const env = {
      MANAGEMENT_API_URL: server.url,
      MANAGEMENT_API_KEY: server.apiKey,
      NGROK_SERVER_ADDR: 'gw.example.com:443',
    };
    expect(await deviceAgent(['setup', '--domain', 'a b', '--bot', 'site A', '--no-wait'], folder, env)).toEqual({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(/^device-agent: a b: .+\n$/),
    });
  });

  it('rejects invalid options', async () => {
    await expect(setup(['--timeout', 'soon'])).rejects.toThrow('number of minutes');
    await expect(setup(['--key-type', 'dsa'])).rejects.toThrow('Allowed choices');
    await expect(setup(['--dns-server', '127.0.0.1', 'dns.example.com'])).rejects.toThrow(/list of IP addresses/);
    await expect(setup(['--server-addr', 'gw.example.com'])).rejects.toThrow(/host:port; the host is/);
  });
});
