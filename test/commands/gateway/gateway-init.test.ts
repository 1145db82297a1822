import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { initialSettings } from '../../../src/commands/gateway/gateway-init-settings.ts';
import { GATEWAY_SERVICE } from '../../../src/service/service.ts';
import { gatherTexts } from '../../../src/settings/setting-sources.ts';
import { AgentProcess, deviceAgent } from '../../support/agent-process.ts';
import { freePort, takenPort } from '../../support/loopback.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const INIT = ['gateway', 'init', '--no-service'];
const init = (folder: string, ...args: string[]) => deviceAgent([...INIT, ...args], folder);
const tokenIn = (stdout: string) => /^ {2}(\w{27}_\w+)$/m.exec(stdout)?.[1];

describe('gateway init --no-service', () => {
  it('makes a gateway that starts with its settings, accepts its key, and is left alone by a second run', async () => {
    const folder = temporaryFolder();
    const [https, http] = [await freePort(), await freePort()];
    const ports = ['--https-port', String(https), '--http-port', String(http)];
    const first = await init(folder, '--domain', 'Gateway.localhost', ...ports);
    expect([first.code, first.stderr]).toEqual([0, '']);
    expect(first.stdout).toContain('\n  device-agent gateway  ');
    expect(first.stdout).toContain("gateway invite --site '*.sitea.gateway.localhost'");
    const key = tokenIn(first.stdout);
    expect(key).toBeDefined();
    expect(statSync(join(folder, '.env')).mode & 0o777).toBe(0o600);
    const settings = readFileSync(join(folder, '.env'), 'utf8');

    const gateway = AgentProcess.start(folder, { GATEWAY_HTTPS_PORT: '', GATEWAY_HTTP_PORT: '' }, ['gateway']);
    try {
      const up = await gateway.logged('gateway listening');
      expect(up).toMatchObject({ https, http, api: `https://api.gateway.localhost:${https}` });
      const second = await init(folder, '--domain', 'gateway.localhost');
      expect(second.stdout).toMatch(/set up before[\s\S]*the gateway runs and answers[\s\S]*API key: exists already/);
      expect(tokenIn(second.stdout)).toBeUndefined();
      expect(readFileSync(join(folder, '.env'), 'utf8')).toBe(settings);
      const env = {
        MANAGEMENT_API_URL: String(up.api),
        MANAGEMENT_API_KEY: String(key),
        MANAGEMENT_API_CA_CERT: 'data/gateway/ca.pem',
      };
      const site = ['setup', '--domain', '*.sitea.gateway.localhost', '--bot', 'a', '--no-wait'];
      expect(await deviceAgent(site, folder, env)).toMatchObject({ code: 0, stderr: '' });
    } finally {
      await gateway.end();
    }
  });

  it('prints JSON, adds its settings to those of others, and refuses another domain', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, '.env'), 'AGENT_PORT=4041\nGATEWAY_HTTPS_PORT=0');
    const args = ['--domain', 'gw.example.com', '--http-port', String(await freePort()), '--address', '192.0.2.7'];
    const notify = ['--notify', 'ops@example.com', '--smtp', 'smtps://gw@mail.example.com'];
    const { code, stdout } = await init(folder, ...args, ...notify, '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      domain: 'gw.example.com',
      created: true,
      message_destination: expect.stringMatching(/^ed_/),
      service: null,
      records: [
        { name: 'gw.example.com', type: 'A', value: '192.0.2.7' },
        { name: '*.gw.example.com', type: 'A', value: '192.0.2.7' },
      ],
      api_key: { id: expect.stringMatching(/^ak_/), token: expect.any(String) },
      next: expect.arrayContaining([expect.stringContaining("--site '*.sitea.example.com'")]),
    });
    expect(readFileSync(join(folder, '.env'), 'utf8')).toMatch(
      /^AGENT_PORT=4041\nGATEWAY_HTTPS_PORT=0\nGATEWAY_DOMAIN=/,
    );
    const other = await init(folder, '--domain', 'other.example.com');
    expect([other.code, other.stderr]).toEqual([1, expect.stringContaining('has the domain gw.example.com')]);
  });

  it('writes what it was told by option or environment, which the next shell does not have', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, '.env'), 'GATEWAY_HTTP_PORT=80\n', { mode: 0o644 });
    const [https, http] = [String(await freePort()), String(await freePort())];
    const told = {
      GATEWAY_DOMAIN: 'gateway.localhost',
      GATEWAY_HTTPS_PORT: https,
      GATEWAY_HTTP_PORT: '80',
      GATEWAY_TCP_PORTS: 'off',
      GATEWAY_ENCRYPTION_KEY: randomBytes(32).toString('base64'),
      DATA_DIR: 'my state #1',
    };
    const env = { ...told, AGENT_PORT: '4041', GATEWAY_HOST: '' };
    const args = ['--http-port', http, '--email', 'ops@example.com', '--json'];
    const { code, stdout, stderr } = await deviceAgent([...INIT, ...args], folder, env);
    expect([code, stderr]).toEqual([0, '']);
    const file = join(folder, '.env');
    expect(gatherTexts({}, folder)).toEqual({
      ...told,
      GATEWAY_HTTP_PORT: http,
      GATEWAY_ACME_EMAIL: 'ops@example.com',
    });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(JSON.parse(stdout)).toMatchObject({ created: true, api_url: `https://api.gateway.localhost:${https}` });
    const again = JSON.parse((await init(folder, '--json')).stdout);
    expect(again).toMatchObject({ created: false, api_url: `https://api.gateway.localhost:${https}`, api_key: null });
  });

  it('changes nothing when a port is in use, or no domain is given', async () => {
    const folder = temporaryFolder();
    const taken = await init(folder, '--domain', 'gw.localhost', '--https-port', String(await takenPort()));
    expect([taken.code, taken.stderr]).toEqual([1, expect.stringMatching(/nothing was changed: https cannot listen/)]);
    const unnamed = await init(folder);
    expect([unnamed.code, unnamed.stderr]).toEqual([2, expect.stringContaining('add --domain')]);
    expect(['.env', 'data'].map((name) => existsSync(join(folder, name)))).toEqual([false, false]);
  });
});

describe('the settings of a new gateway', () => {
  const address = { netmask: '', mac: '', cidr: null, internal: false };
  const v4 = { ...address, family: 'IPv4' as const, address: '192.0.2.7' };
  const v6 = { ...address, family: 'IPv6' as const, address: '2001:db8::7', scopeid: 0 };
  const linkLocal = { ...v6, address: 'fe80::7' };
  const wanted = {
    isService: true,
    httpsPort: null,
    httpPort: null,
    acme: true,
    email: null,
    database: null,
    nodeAddress: null,
    encryptionKey: null,
    environment: {},
  };
  const values = (domain: string, addresses: (typeof v4 | typeof v6)[], changes: Partial<typeof wanted> = {}) =>
    Object.fromEntries(
      initialSettings({ ip: null, domain, ...wanted, ...changes }, () => false, { eth0: addresses }).map(
        ({ name, value }) => [name, value],
      ),
    );

  it('of a public domain order certificates, and answer DNS beside a local resolver', () => {
    expect(values('gw.example.com', [linkLocal, v4])).toEqual({
      GATEWAY_DOMAIN: 'gw.example.com',
      GATEWAY_HOST: '0.0.0.0',
      GATEWAY_HTTPS_PORT: '443',
      GATEWAY_HTTP_PORT: '80',
      GATEWAY_ACME_OWN_NAMES: 'public',
      GATEWAY_DNS_PORT: '53',
      GATEWAY_DNS_HOST: '192.0.2.7',
    });
    expect(values('gw.example.com', [v6, v4])).toMatchObject({ GATEWAY_HOST: '::', GATEWAY_DNS_HOST: '192.0.2.7' });
  });

  it('of an address order a certificate for it, if it is public', () => {
    const address = (ip: string, acme = true) =>
      initialSettings({ domain: null, ip, ...wanted, acme }, () => false, { eth0: [v4] }).map(
        ({ name, value }) => `${name}=${value}`,
      );
    const common = ['GATEWAY_HOST=0.0.0.0', 'GATEWAY_HTTPS_PORT=443', 'GATEWAY_HTTP_PORT=80'];
    const ordered = ['GATEWAY_ACME_DIRECTORY=letsencrypt', 'GATEWAY_ACME_OWN_NAMES=public'];
    expect(address('93.184.216.34')).toEqual(['GATEWAY_IP=93.184.216.34', ...common, ...ordered]);
    expect(GATEWAY_SERVICE.startsWith.test(address('93.184.216.34').join('\n'))).toBe(true);
    expect(address('93.184.216.34', false)).toEqual(
      expect.arrayContaining(['GATEWAY_ACME_DIRECTORY=local', 'GATEWAY_IP=93.184.216.34']),
    );
    expect(address('10.0.0.1')).toEqual(['GATEWAY_IP=10.0.0.1', ...common]);
  });

  it('need no public CA with --no-acme or a domain that none certifies', () => {
    expect(values('gw.example.com', [v4], { acme: false })).toMatchObject({ GATEWAY_ACME_DIRECTORY: 'local' });
    const environment = { GATEWAY_ACME_DIRECTORY: 'local', GATEWAY_HTTPS_PORT: '444' };
    expect(values('gw.example.com', [v4], { environment })).toEqual({
      GATEWAY_DOMAIN: 'gw.example.com',
      GATEWAY_HOST: '0.0.0.0',
      GATEWAY_HTTP_PORT: '80',
      ...environment,
    });
    expect(values('gateway.lan', [v4])).not.toHaveProperty('GATEWAY_ACME_OWN_NAMES');
  });
});
