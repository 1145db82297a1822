import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { OperatorError } from '../../src/lib/errors.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { loadGatewayServerSettings } from '../../src/settings/gateway-settings.ts';
import { loadManagementSettings } from '../../src/settings/management-settings.ts';
import { selfSigned } from '../support/self-signed.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const { cert: certificate } = await selfSigned();
let folder: string;
beforeEach(() => {
  folder = temporaryFolder();
});

const load = (env: Record<string, string> = {}) => loadSettings(env, folder);
const loadGateway = (env: Record<string, string>) => loadGatewayServerSettings(env, folder);
const problemOf = (env: Record<string, string>, from: typeof load | typeof loadGateway = load) => {
  try {
    from(env);
  } catch (error) {
    if (error instanceof OperatorError) return error;
    throw error;
  }
  throw new Error('the settings were accepted');
};

describe('settings', () => {
  it('uses the embedded gateway when neither authtoken nor server address is set', () => {
    expect(load().gateway).toEqual({
      kind: 'embedded',
      chosen: false,
      domain: 'localhost',
      httpPort: 8080,
      httpsPort: 8443,
      tcpPorts: { first: 20_000, last: 20_999 },
      encryptionKey: null,
    });
    expect(load().api).toMatchObject({ host: '127.0.0.1', port: 4040, domain: 'agent.localhost', requireToken: true });
  });

  it('GATEWAY_TCP_PORTS accepts a range, one port or off', () => {
    const tcpPorts = (value: string) => loadGateway({ GATEWAY_TCP_PORTS: value }).tcpPorts;
    expect(tcpPorts('30000-30099')).toEqual({ first: 30_000, last: 30_099 });
    expect(tcpPorts('2222')).toEqual({ first: 2222, last: 2222 });
    expect(tcpPorts('off')).toBeNull();
    for (const wrong of ['0-10', '20-10', '1-65536', 'on', '1-2-3']) {
      expect(() => tcpPorts(wrong)).toThrow(/GATEWAY_TCP_PORTS=.*allowed: a range such as 20000-20999/);
    }
  });

  it('GATEWAY_IP takes an address, and refuses what would give it away or cannot work', () => {
    const ip = (env: Record<string, string>) => loadGateway(env).ip;
    expect(ip({ GATEWAY_IP: '203.0.113.5' })).toBe('203.0.113.5');
    expect(ip({ GATEWAY_IP: '2001:DB8:0::5' })).toBe('2001:db8::5');
    const shared = {
      GATEWAY_DATABASE_URL: 'postgres://db/gateway',
      GATEWAY_ENCRYPTION_KEY: Buffer.alloc(32).toString('base64'),
    };
    for (const [env, problem] of [
      [{ GATEWAY_IP: '0.0.0.0' }, /must be one address/],
      [{ GATEWAY_IP: 'fe80::1%eth0' }, /must be one address/],
      [{ GATEWAY_IP: '203.0.113.5', GATEWAY_HTTPS_PORTS: '20999-21000' }, /overlaps with GATEWAY_TCP_PORTS/],
      [{ GATEWAY_IP: '203.0.113.5', GATEWAY_TCP_PORTS: '400-500' }, /must not include 443/],
      [{ ...shared, GATEWAY_IP: '203.0.113.5', GATEWAY_NODE_ADDRESS: '10.0.0.1:443' }, /belong to one gateway/],
    ] as const)
      expect(problemOf(env, loadGateway).message).toMatch(problem);
  });

  it('an authtoken alone selects ngrok’s cloud, without a remote API unless AGENT_DOMAIN is set', () => {
    const { gateway, api } = load({ NGROK_AUTHTOKEN: 'secret' });
    expect(gateway).toMatchObject({ kind: 'remote', serverAddr: null, authorities: null });
    expect(api.domain).toBeNull();
  });

  it('NGROK_SERVER_ADDR and NGROK_CA_CERT select another gateway and its CA', () => {
    writeFileSync(join(folder, 'ca.pem'), certificate);
    const env = { NGROK_AUTHTOKEN: 't', NGROK_SERVER_ADDR: 'gw.example.com:443', NGROK_CA_CERT: 'ca.pem' };
    expect(load(env).gateway).toMatchObject({
      serverAddr: 'gw.example.com:443',
      authorities: { pem: expect.any(Buffer) },
    });
  });

  it('NGROK_CA_CERT selects the SDK’s own CA or those of the operating system', () => {
    const trusting = (word: string) => load({ NGROK_AUTHTOKEN: 't', NGROK_CA_CERT: word }).gateway;
    expect(trusting('trusted')).toMatchObject({ authorities: null });
    expect(trusting('host')).toMatchObject({
      authorities: { host: expect.stringContaining('-----BEGIN CERTIFICATE-----') },
    });
  });

  it('NGROK_SERVER_ADDR accepts IPv6 addresses only in brackets', () => {
    const to = (serverAddr: string) => ({ NGROK_AUTHTOKEN: 't', NGROK_SERVER_ADDR: serverAddr });
    expect(load(to('[::1]:4443')).gateway).toMatchObject({ serverAddr: '[::1]:4443' });
    expect(load(to('192.0.2.7:443')).gateway).toMatchObject({ serverAddr: '192.0.2.7:443' });
    for (const wrong of ['::1:4443', '[::1]', '[fe80::zz]:1', '[]:1', '192.0.2:443', '..:443', '-:443']) {
      expect(problemOf(to(wrong)).message).toContain('NGROK_SERVER_ADDR=');
    }
  });

  it('proxy variables are accepted in both cases, and errors hide their passwords', () => {
    const env = {
      NGROK_AUTHTOKEN: 't',
      HTTPS_PROXY: 'http://a:1',
      all_proxy: 'socks5://u:p@b:2',
      no_proxy: 'free.example',
    };
    const { gateway } = load(env);
    if (gateway.kind !== 'remote') throw new Error('not remote');
    const { https, http, all, exempt } = gateway.proxies;
    expect([https?.host, http, all?.port, exempt({ host: 'free.example', port: 1 })]).toEqual(['a', null, 2, true]);
    expect(load({ ...env, https_proxy: 'http://z:9' }).gateway).toMatchObject({ proxies: { https: { host: 'a' } } });
    const { message } = problemOf({ ...env, HTTP_PROXY: 'socks4://u:hush@c' });
    expect(message).toMatch(/HTTP_PROXY=\(not shown\): socks4:\/\/ is not supported.*socks5/);
    expect(message).not.toContain('hush');
    expect(problemOf({ ...env, NO_PROXY: 'a b' }).message).toMatch(/NO_PROXY="a b"/);
  });

  it('NGROK_SERVER_ADDR is rejected without an authtoken', () => {
    expect(problemOf({ NGROK_SERVER_ADDR: 'gw.example.com:443' }).message).toMatch(/NGROK_AUTHTOKEN is not set/);
  });

  it('AGENT_GATEWAY=remote requires an authtoken, and the error says where to put it', () => {
    const { message, exitCode } = problemOf({ AGENT_GATEWAY: 'remote' });
    expect(exitCode).toBe(2);
    expect(message).toMatch(/NGROK_AUTHTOKEN is not set.*NGROK_AUTHTOKEN_FILE.*AGENT_GATEWAY=embedded/);
    const remote = { AGENT_GATEWAY: 'remote', NGROK_AUTHTOKEN: 'secret' };
    expect(load(remote).gateway).toMatchObject({ kind: 'remote', serverAddr: null });
  });

  it('AGENT_GATEWAY=embedded overrides other settings, and unsupported values are rejected', () => {
    const env = { NGROK_AUTHTOKEN: 't', NGROK_SERVER_ADDR: 'gw.example.com:443' };
    expect(load({ ...env, AGENT_GATEWAY: 'embedded' }).gateway).toMatchObject({ kind: 'embedded', chosen: true });
    // Settings that depend on the unsupported value are not reported.
    expect(problemOf({ AGENT_GATEWAY: 'cloud' }).message).toMatch(
      /settings:\n {2}AGENT_GATEWAY="cloud".*auto, remote, embedded$/,
    );
  });

  it('the authtoken can be a systemd credential, unless that is empty or another authtoken is set', () => {
    const credential = join(folder, 'ngrok-authtoken');
    const env = { CREDENTIALS_DIRECTORY: folder, AGENT_GATEWAY: 'remote' };
    const authtoken = (more = {}) => {
      const { gateway } = load({ ...env, ...more });
      return gateway.kind === 'remote' && gateway.authtoken();
    };
    writeFileSync(credential, 'from-systemd\n');
    expect(authtoken()).toBe('from-systemd');
    expect(authtoken({ NGROK_AUTHTOKEN: 'set' })).toBe('set');
    for (const spoil of [() => writeFileSync(credential, '\n'), () => rmSync(credential)]) {
      spoil();
      expect(problemOf(env).message).toMatch(/NGROK_AUTHTOKEN is not set/);
    }
  });

  it('the authtoken’s file is read for each attempt, and the last value is kept while it has none', () => {
    const file = join(folder, 'token');
    writeFileSync(file, 'first\n');
    const { gateway } = load({ NGROK_AUTHTOKEN_FILE: file });
    if (gateway.kind !== 'remote') throw new Error('expected a remote gateway');
    expect(gateway.authtoken()).toBe('first');
    writeFileSync(file, 'second\n');
    expect(gateway.authtoken()).toBe('second');
    writeFileSync(file, '<html>\n<body>not found</body>\n');
    expect(gateway.authtoken()).toBe('second');
    rmSync(file);
    expect(gateway.authtoken()).toBe('second');
  });

  it('.env sets what the environment does not set, and empty values count as unset', () => {
    writeFileSync(join(folder, '.env'), 'AGENT_PORT=5000\nLOG_LEVEL=debug\nGATEWAY_DOMAIN=\n');
    const settings = load({ AGENT_PORT: '6000', DATA_DIR: '' });
    expect(settings.api.port).toBe(6000);
    expect(settings.log.level).toBe('debug');
    expect(settings.api.domain).toBe('agent.localhost');
    expect(settings.dataDir).toBe(join(folder, 'data'));
  });

  it('a secret comes from the strongest source, set directly or as a file', () => {
    const tokens = (dotenv: string, env: Record<string, string>) => {
      writeFileSync(join(folder, '.env'), dotenv);
      const { gateway, api } = load(env);
      return [gateway.kind === 'remote' && gateway.authtoken(), api.token];
    };
    writeFileSync(join(folder, 'secret'), 'kept-in-a-file-of-its-own\n');
    const inFile = { NGROK_AUTHTOKEN_FILE: join(folder, 'secret'), AGENT_API_TOKEN_FILE: join(folder, 'secret') };
    const itself = { NGROK_AUTHTOKEN: 'authtoken', AGENT_API_TOKEN: 'token-of-the-api' };
    const text = (variables: object) =>
      Object.entries(variables)
        .map(([name, value]) => `${name}=${value}\n`)
        .join('');
    expect(tokens(text(itself), inFile)).toEqual(['kept-in-a-file-of-its-own', 'kept-in-a-file-of-its-own']);
    expect(tokens(text(inFile), itself)).toEqual(['authtoken', 'token-of-the-api']);
  });

  it.each(['NGROK_AUTHTOKEN', 'AGENT_API_TOKEN'])(
    '%s is rejected when one source sets it both directly and as a file',
    (name) => {
      writeFileSync(join(folder, 'secret'), 'kept-in-a-file-of-its-own\n');
      const both = { [name]: 'kept-in-the-environment', [`${name}_FILE`]: join(folder, 'secret') };
      const { message } = problemOf(both);
      expect(message).toContain(`${name} and ${name}_FILE are both set`);
      expect(message).not.toContain('kept-in');
    },
  );

  it('the error has exit code 2 and every invalid variable with its value and the allowed values', () => {
    const error = problemOf({ AGENT_PORT: '70000', LOG_LEVEL: 'loud', AGENT_ALLOW_UPSTREAMS: '300.1.1.1/8' });
    expect(error.exitCode).toBe(2);
    expect(error.message).toMatch(/AGENT_PORT="70000".*0 to 65535/);
    expect(error.message).toMatch(/LOG_LEVEL="loud".*info/);
    expect(error.message).toMatch(/AGENT_ALLOW_UPSTREAMS="300\.1\.1\.1\/8"/);
  });

  it('a secret may end in a line break, and a blank one is reported once', () => {
    const { gateway, api } = load({ NGROK_AUTHTOKEN: ' an_authtoken\r\n', AGENT_API_TOKEN: 'sixteen-characters\n' });
    expect(gateway.kind === 'remote' && gateway.authtoken()).toBe('an_authtoken');
    expect(api.token).toBe('sixteen-characters');
    expect(problemOf({ AGENT_API_TOKEN: 'short-one' }).message).toMatch(/AGENT_API_TOKEN: the token has 9 characters/);
    for (const NGROK_AUTHTOKEN of [' ', 'two words', 'é', '"quoted"']) {
      const { message } = problemOf({ NGROK_AUTHTOKEN, NGROK_SERVER_ADDR: 'gw.example.com:443' });
      expect(message.match(/NGROK_AUTHTOKEN.*/g)).toEqual([expect.stringMatching(/^NGROK_AUTHTOKEN=\(not shown\)/)]);
    }
  });

  it('an IP address is rejected as a domain', () => {
    expect(problemOf({ AGENT_DOMAIN: '192.0.2.7' }).message).toMatch(/AGENT_DOMAIN="192\.0\.2\.7": ends in a number/);
    expect(problemOf({ GATEWAY_DOMAIN: '192.0.2.7' }).message).toMatch(/GATEWAY_DOMAIN=/);
    expect(load({ AGENT_DOMAIN: '7.example.com' }).api.domain).toBe('7.example.com');
  });

  it('invalid listen addresses are rejected', () => {
    for (const wrong of ['[::1]', '127.0.0.1:4040', 'http://localhost', 'my host', '127.1']) {
      expect(problemOf({ AGENT_HOST: wrong }).message).toMatch(/AGENT_HOST=.*without a port$/);
    }
    for (const right of ['::1', '192.0.2.7', 'localhost', 'pi.local']) {
      expect(load({ AGENT_HOST: right }).api.host).toBe(right);
    }
    for (const name of ['GATEWAY_HOST', 'GATEWAY_DNS_HOST']) {
      expect(problemOf({ [name]: 'gw.example.com' }, loadGateway).message).toMatch(/: not an IP address; allowed/);
    }
  });

  it('invalid encryption keys and zero limits are rejected', () => {
    const { message } = problemOf({ GATEWAY_ENCRYPTION_KEY: 'c2hvcnQ=' });
    expect(message).toMatch(/GATEWAY_ENCRYPTION_KEY=\(not shown\): contains 5 bytes; .*openssl rand -base64 32\)/);
    for (const name of ['GATEWAY_API_BODY_LIMIT', 'GATEWAY_API_TIMEOUT']) {
      expect(problemOf({ [name]: '0' }, loadGateway).message).toMatch(/="0": not a number in this range.*from 1 to/);
    }
  });

  it('the gateway and setup ignore incomplete settings of the agent', () => {
    const env = { NGROK_SERVER_ADDR: 'gw.example.com:443', NGROK_CA_CERT: 'on-the-device.pem' };
    expect(() => load(env)).toThrow(OperatorError);
    expect(loadGatewayServerSettings(env, folder).sessionPort).toBeNull();
    expect(loadGatewayServerSettings({ ...env, GATEWAY_SESSION_PORT: '4443' }, folder).sessionPort).toBe(4443);
    expect(loadManagementSettings(env, folder)).toEqual({
      apiUrl: null,
      apiKey: null,
      apiCa: null,
      apiCaFile: null,
      serverAddr: 'gw.example.com:443',
      caCert: 'on-the-device.pem',
      proxies: { https: null, http: null, all: null, exempt: expect.any(Function) },
    });
  });

  it('set the limits of the management API', () => {
    const limits = (env: Record<string, string>) => loadGatewayServerSettings(env, folder).limits;
    expect(limits({})).toMatchObject({ rateLimit: null, body: { maxBytes: 1_048_576, timeoutMs: 30_000 } });
    const env = {
      GATEWAY_API_RATE_LIMIT: '120',
      GATEWAY_API_BODY_LIMIT: '2048',
      GATEWAY_API_TIMEOUT: '5',
      GATEWAY_API_AUTH_DELAY: '100',
    };
    expect(limits(env)).toMatchObject({
      rateLimit: { requests: 120, windowMs: 60_000 },
      body: { maxBytes: 2048, timeoutMs: 5000 },
      failedAttempts: { delayMs: 100, maxDelayMs: 2000 },
    });
    expect(() => limits({ GATEWAY_API_RATE_LIMIT: 'many' })).toThrow(/GATEWAY_API_RATE_LIMIT="many"/);
  });

  it('set the limits on clients of the edge', () => {
    const limits = (env: Record<string, string>) => loadGatewayServerSettings(env, folder).edgeLimits;
    expect(limits({})).toEqual({
      connections: 8192,
      handshakeTimeout: 10_000,
      headersTimeout: 30_000,
      headerBytes: 65_536,
      streams: 100,
      streamIdleTimeout: 3_600_000,
    });
    const env = {
      GATEWAY_MAX_CONNECTIONS: '100',
      GATEWAY_HANDSHAKE_TIMEOUT: '1',
      GATEWAY_HEADERS_TIMEOUT: '2',
      GATEWAY_HEADERS_LIMIT: '4096',
      GATEWAY_HTTP_STREAMS: '0',
      GATEWAY_STREAM_TIMEOUT: '60',
    };
    expect(limits(env)).toEqual({
      connections: 100,
      handshakeTimeout: 1000,
      headersTimeout: 2000,
      headerBytes: 4096,
      streams: 0,
      streamIdleTimeout: 60_000,
    });
    expect(() => limits({ GATEWAY_STREAM_TIMEOUT: '0' })).toThrow(/GATEWAY_STREAM_TIMEOUT="0".*from 1 to 604800/);
  });

  it('set the limits on agents of a gateway', () => {
    const limits = (env: Record<string, string>) => loadGatewayServerSettings(env, folder).agentLimits;
    expect(limits({})).toEqual({
      ...{ endpoints: 10_000, connections: 500 },
      ...{ optionBytes: 67_108_864, policyShare: 0.25 },
    });
    const env = {
      GATEWAY_MAX_SESSIONS: '20',
      GATEWAY_MAX_ENDPOINTS: '5',
      GATEWAY_MAX_STREAMS: '7',
      GATEWAY_MAX_OPTIONS: '2000000',
      GATEWAY_MAX_POLICY_TIME: '50',
    };
    expect(limits(env)).toEqual({
      ...{ sessions: 20, endpoints: 5, connections: 7 },
      ...{ optionBytes: 2_000_000, policyShare: 0.5 },
    });
    expect(() => limits({ GATEWAY_MAX_STREAMS: '501' })).toThrow(/GATEWAY_MAX_STREAMS="501"/);
    expect(() => limits({ GATEWAY_MAX_OPTIONS: '5' })).toThrow(/GATEWAY_MAX_OPTIONS="5"/);
  });

  it('MANAGEMENT_API_CA_CERT is rejected when it contains no certificate', () => {
    writeFileSync(join(folder, 'ca.pem'), 'hello');
    expect(() => loadManagementSettings({ MANAGEMENT_API_CA_CERT: 'ca.pem' }, folder)).toThrow(
      /MANAGEMENT_API_CA_CERT=.*no PEM certificate/,
    );
  });

  it('a CA file without a certificate and a missing secret file are rejected', () => {
    writeFileSync(join(folder, 'ca.pem'), 'hello');
    expect(problemOf({ NGROK_AUTHTOKEN: 't', NGROK_CA_CERT: 'ca.pem' }).message).toMatch(/no PEM certificate/);
    writeFileSync(join(folder, 'ca.pem'), certificate.slice(0, 300));
    expect(problemOf({ NGROK_AUTHTOKEN: 't', NGROK_CA_CERT: 'ca.pem' }).message).toMatch(
      /damaged; copy the file again/,
    );
    expect(problemOf({ NGROK_AUTHTOKEN_FILE: 'missing' }).message).toMatch(/NGROK_AUTHTOKEN_FILE=.*ENOENT/);
  });
});

it('AGENT_ALLOW_UPSTREAMS defaults to this device, private networks and the user’s own sockets', async () => {
  const { allowUpstreams } = load();
  expect(allowUpstreams.allowsAddress('127.0.0.1', 80)).toBe(true);
  expect(allowUpstreams.allowsAddress('192.168.1.9', 80)).toBe(true);
  expect(allowUpstreams.allowsAddress('8.8.8.8', 80)).toBe(false);
  expect(await allowUpstreams.allowsSocket(join(folder, 'app.sock'))).toBe(true);
  expect(await allowUpstreams.allowsSocket('/run/docker.sock')).toBe(false);
});

describe('settings of certificates', () => {
  it('select Let’s Encrypt for public domains and the gateway’s local CA for others', () => {
    const directory = (GATEWAY_DOMAIN: string) => loadGateway({ GATEWAY_DOMAIN }).acme?.directoryUrl;
    expect(directory('gw.example.com')).toBe('https://acme-v02.api.letsencrypt.org/directory');
    for (const domain of ['localhost', 'gw.localhost', 'gateway', 'pi.local', 'gw.home.arpa', 'gw.test']) {
      expect(directory(domain)).toBeUndefined();
    }
    expect(loadGateway({ GATEWAY_DOMAIN: 'gw.example.com', GATEWAY_ACME_DIRECTORY: 'local' }).acme).toBeNull();
  });

  it('select another ACME CA with its account and the CA of its own certificate', () => {
    writeFileSync(join(folder, 'ca.pem'), certificate);
    const { acme } = loadGateway({
      GATEWAY_ACME_DIRECTORY: 'https://ca.site.test/directory',
      GATEWAY_ACME_EMAIL: 'ops@example.com',
      GATEWAY_ACME_EAB_KID: 'kid-1',
      GATEWAY_ACME_EAB_HMAC: 'c2VjcmV0',
      GATEWAY_ACME_CA_CERT: 'ca.pem',
      GATEWAY_DNS_RESOLVERS: '1.1.1.1, 127.0.0.1:5353, ::1, [2001:db8::1]:53',
    });
    expect(acme).toEqual({
      directoryUrl: 'https://ca.site.test/directory',
      contactEmail: 'ops@example.com',
      externalAccountBinding: { kid: 'kid-1', hmacKey: 'c2VjcmV0' },
      trust: certificate,
      resolvers: ['1.1.1.1', '127.0.0.1:5353', '::1', '[2001:db8::1]:53'],
      ownNames: 'none',
      issuers: null,
      root: null,
      profile: null,
      chain: null,
    });
  });

  it('hand the root of a private CA on to devices, but not what this machine trusts for other reasons', async () => {
    const [root, extra] = await Promise.all([selfSigned(), selfSigned()].map(async (each) => (await each).cert));
    for (const [name, pem] of Object.entries({ root, extra })) writeFileSync(join(folder, `${name}.pem`), String(pem));
    const { acme } = loadGateway({
      GATEWAY_DOMAIN: 'gw.example.com',
      GATEWAY_ACME_ROOT_CERT: join(folder, 'root.pem'),
      NODE_EXTRA_CA_CERTS: join(folder, 'extra.pem'),
    });
    expect(acme?.root).toBe(root);
    expect(acme?.issuers).toContain(root);
    expect(acme?.issuers).toContain(extra);
  });

  it('enable the DNS server when its port is set, by default on the gateway’s address', () => {
    const GATEWAY_DOMAIN = 'gw.example.com';
    expect(loadGateway({ GATEWAY_DOMAIN }).challengeDns).toBeNull();
    const nameServer = 'connect.gw.example.com';
    const here = { port: 53, host: '192.0.2.1', nameServer };
    expect(loadGateway({ GATEWAY_DOMAIN, GATEWAY_DNS_PORT: '53', GATEWAY_HOST: '192.0.2.1' }).challengeDns).toEqual(
      here,
    );
    const all = {
      GATEWAY_DOMAIN,
      GATEWAY_DNS_PORT: '0',
      GATEWAY_DNS_HOST: '::',
      GATEWAY_DNS_NAMESERVER: 'ns.example.com',
    };
    expect(loadGateway(all).challengeDns).toEqual({ port: 0, host: '::', nameServer: 'ns.example.com' });
  });

  it.each([
    [{ GATEWAY_ACME_DIRECTORY: 'http://ca.site.test/' }, /GATEWAY_ACME_DIRECTORY=.*letsencrypt-staging/],
    [{ GATEWAY_ACME_DIRECTORY: 'zerossl' }, /GATEWAY_ACME_DIRECTORY="zerossl"/],
    [{ GATEWAY_ACME_EMAIL: 'nobody' }, /GATEWAY_ACME_EMAIL="nobody".*e-mail/],
    [{ GATEWAY_ACME_EAB_KID: 'kid-1' }, /GATEWAY_ACME_EAB_HMAC: set both or neither/],
    [{ GATEWAY_ACME_CA_CERT: 'missing.pem' }, /GATEWAY_ACME_CA_CERT=.*ENOENT/],
    [{ GATEWAY_DNS_RESOLVERS: 'dns.google' }, /GATEWAY_DNS_RESOLVERS="dns\.google"/],
    [{ GATEWAY_DNS_RESOLVERS: '1.1.1.1:99999' }, /GATEWAY_DNS_RESOLVERS/],
    [{ GATEWAY_DOMAIN: 'gw.example.com', GATEWAY_DNS_NAMESERVER: 'ns.acme.gw.example.com' }, /inside the zone/],
    [{ GATEWAY_ACME_OWN_NAMES: 'all' }, /requires an ACME CA in GATEWAY_ACME_DIRECTORY/],
  ])('are rejected: %j', (env, problem) => {
    expect(problemOf(env, loadGateway).message).toMatch(problem);
  });
});

it('each command loads only its own settings', () => {
  const agentsOnly = { NGROK_SERVER_ADDR: 'gw.example.com:443' };
  expect(problemOf(agentsOnly).message).toMatch(/NGROK_AUTHTOKEN is not set/);
  expect(loadGateway(agentsOnly).domain).toBe('localhost');
  expect(load({ GATEWAY_ACME_EAB_KID: 'kid-1' }).gateway.kind).toBe('embedded');
});
