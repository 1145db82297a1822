import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createServer as createTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { agentSession, agentSettings, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { freePort, serving, takenPort, webPort } from '../support/loopback.ts';
import { TestProxy } from '../support/proxies.ts';
import { silentLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { examine, keepTunnels } from './examination.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.close());

const remote = (): Record<string, string> => agentSettings(gateway);
const failure = (detail: RegExp, advice: RegExp | null = /./) => ({
  status: 'failed',
  detail: expect.stringMatching(detail),
  advice: advice === null ? null : expect.stringMatching(advice),
});
const success = (detail: RegExp) => ({ status: 'ok', detail: expect.stringMatching(detail), advice: null });
const skip = (detail: RegExp) => ({ status: 'skipped', detail: expect.stringMatching(detail), advice: null });
const resolve = async (name: string) => {
  if (name.startsWith('unknown')) throw Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND' });
  if (name.startsWith('later')) throw Object.assign(new Error('getaddrinfo EAI_AGAIN'), { code: 'EAI_AGAIN' });
  return ['127.0.0.1'];
};

describe('with a correct gateway', () => {
  it('all checks pass, and no endpoint stays on the gateway', async () => {
    const folder = temporaryFolder();
    const port = await webPort();
    await keepTunnels(folder, [
      { forwards_to: `localhost:${port}` },
      { domain: 'two.localhost', forwards_to: `${port}` },
    ]);
    const found = await examine(folder, { ...remote(), AGENT_DOMAIN: 'me.localhost' }, { resolve });
    expect(found('gateway-dns')).toEqual([skip(/is an address already/)]);
    expect(found('gateway')).toEqual([success(/answers as CN=.*signed by CN=device-agent local CA/)]);
    expect(found('clock')).toEqual([success(/within the validity of the gateway's certificate/)]);
    expect(found('authtoken')).toEqual([success(/accepted by the gateway/)]);
    expect(found('acl')).toEqual([success(/^3 domains allowed/)]);
    expect(found('domains-dns')).toEqual([success(/^3 names/)]);
    expect(found('upstreams')).toEqual([success(/^2 answer/)]);
    expect(gateway.endpoints.list()).toEqual([]);
  });

  it('names below localhost are this machine, for the agent, doctor and upstreams', async () => {
    const port = await webPort();
    const folder = temporaryFolder();
    await keepTunnels(folder, [{ forwards_to: `camera.localhost:${port}` }]);
    const env = { ...remote(), NGROK_SERVER_ADDR: `connect.localhost:${gateway.sessionPort}` };
    const found = await examine(folder, env);
    expect(found('gateway-dns')).toEqual([success(/^connect\.localhost is 127\.0\.0\.1$/)]);
    expect(found('gateway')).toEqual([success(/answers as CN=/)]);
    expect(found('acl')).toEqual([success(/^1 domain allowed/)]);
    expect(found('upstreams')).toEqual([success(/^1 answers/)]);
    const agent = AgentProcess.inTest(folder, env);
    await agent.ready();
  });

  it('names without an address fail', async () => {
    const folder = temporaryFolder();
    const domains = ['known.example.com', 'unknown.example.com', 'unknown.internal', 'later.example.com'];
    await keepTunnels(
      folder,
      domains.map((domain) => ({ domain })),
    );
    const addr = `unknown-gateway.example.com:${await freePort()}`;
    const found = await examine(folder, { ...remote(), NGROK_SERVER_ADDR: addr }, { resolve });
    expect(found('gateway-dns')).toEqual([failure(/^unknown-gateway\.example\.com has no address/, /resolvectl/)]);
    expect(found('domains-dns')).toEqual([
      success(/^1 name/),
      failure(/^unknown\.example\.com/, /CNAME/),
      failure(/^later\.example\.com/, /name server/),
    ]);
  });

  it('a refused authtoken fails and is not shown', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}]);
    const wrong = `${gateway.authtoken.slice(0, -4)}aaaa`;
    const found = await examine(folder, { ...remote(), NGROK_AUTHTOKEN: wrong });
    expect(found('authtoken')).toEqual([failure(/ERR_NGROK_107/, /NGROK_AUTHTOKEN/)]);
    expect(found('acl')).toEqual([skip(/no session/)]);
    expect(JSON.stringify([found('authtoken'), found('gateway')])).not.toContain(wrong);
  });

  it('a domain outside the authtoken’s ACL or not reserved fails', async () => {
    const { store } = gateway;
    const { token } = await store.database.write(() => issueCredential(store, { acl: ['bind:*.site.localhost'] }));
    const folder = temporaryFolder();
    await keepTunnels(folder, [{ domain: 'a.site.localhost' }, { domain: 'b.other.localhost' }]);
    const found = await examine(folder, { ...remote(), NGROK_AUTHTOKEN: token });
    expect(found('acl')).toEqual([
      success(/^1 domain allowed/),
      failure(/^b\.other\.localhost: .*\(ERR_NGROK_316\)/, /bind:b\.other\.localhost/),
    ]);
    await keepTunnels(folder, [{ domain: 'cam.not-reserved.example' }]);
    expect((await examine(folder, remote()))('acl')).toEqual([failure(/ERR_NGROK_319/, /reserve/)]);
  });

  it('a domain in use by another agent fails and stays online there', async () => {
    const session = await agentSession(gateway).connect();
    const listener = await session.httpEndpoint().domain('busy.localhost').listen();
    const folder = temporaryFolder();
    await keepTunnels(folder, [{ domain: 'busy.localhost' }]);
    expect((await examine(folder, remote()))('acl')).toEqual([failure(/ERR_NGROK_334/, /another agent uses/)]);
    expect(gateway.endpoints.list().map(({ host }) => host)).toEqual(['busy.localhost']);
    await listener.close();
    await session.close();
  });
});

describe('when another server answers at the gateway’s address', () => {
  const reach = async (env: Record<string, string>) => {
    const folder = temporaryFolder();
    const found = await examine(folder, { ...remote(), ...env });
    // It must not receive the authtoken.
    expect(found('authtoken')).toEqual([skip(/unreachable or not trusted/)]);
    return found('gateway');
  };

  it('a refused connection names NGROK_SERVER_ADDR', async () => {
    const address = `127.0.0.1:${await freePort()}`;
    expect(await reach({ NGROK_SERVER_ADDR: address })).toEqual([failure(/ECONNREFUSED/, /NGROK_SERVER_ADDR/)]);
  });

  it('a closed connection fails', async () => {
    const address = `127.0.0.1:${await takenPort()}`;
    expect(await reach({ NGROK_SERVER_ADDR: address })).toEqual([failure(/is unreachable/)]);
  });

  it('a server without TLS fails', async () => {
    const address = `127.0.0.1:${gateway.httpPort}`;
    expect(await reach({ NGROK_SERVER_ADDR: address })).toEqual([
      failure(/does not answer with TLS/, /captive portal/),
    ]);
  });

  it('a server that accepts connections and is silent may be a captive portal', async () => {
    const portal = await FlakyProxy.start(gateway.sessionAddress);
    onTestFinished(() => portal.close());
    portal.silence();
    const found = await examine(
      temporaryFolder(),
      { ...remote(), NGROK_SERVER_ADDR: portal.address },
      { patience: 0.5 },
    );
    expect(found('gateway')).toEqual([
      failure(/accepts connections, but gives no answer within/, /^a captive portal or firewall/),
    ]);
  });

  it('the certificate of a captive portal is named', async () => {
    const folder = temporaryFolder();
    const ca = await openLocalCa(folder, silentLog);
    const { cert, key } = await ca.issue(['portal.hotel.example']);
    const server = createTls({ cert, key }, (socket) => socket.destroy());
    const address = `127.0.0.1:${await serving(server)}`;
    const [unknown] = await reach({ NGROK_SERVER_ADDR: address });
    expect(unknown).toEqual(
      failure(/CN=portal\.hotel\.example.*this is not the gateway/, /^a captive portal.*NGROK_CA_CERT/),
    );
    // Signed by a trusted CA, but for another name.
    writeFileSync(join(folder, 'both.pem'), `${gateway.sessionCa}${ca.caPem}`);
    const [other] = await reach({ NGROK_SERVER_ADDR: address, NGROK_CA_CERT: join(folder, 'both.pem') });
    expect(other).toEqual(
      failure(/CN=portal\.hotel\.example.*ERR_TLS_CERT_ALTNAME_INVALID/, /^a captive portal.*NGROK_SERVER_ADDR/),
    );
  });
});

describe('behind a proxy', () => {
  it('all connections go through the proxy', async () => {
    const proxy = await TestProxy.socks();
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}]);
    const env = { ...remote(), ALL_PROXY: `socks5://${proxy.address}` };
    const found = await examine(folder, env);
    expect(found('gateway')).toEqual([success(/^127\.0\.0\.1:\d+ \(through socks5:\/\/127\.0\.0\.1:\d+\) answers as/)]);
    expect(found('authtoken')).toEqual([success(/accepted by the gateway/)]);
    expect(found('acl')).toEqual([success(/^1 domain allowed/)]);
    expect(new Set(proxy.asked)).toEqual(new Set([gateway.sessionAddress]));
  });

  it('a failing proxy is named without its password', async () => {
    const proxy = await TestProxy.http({ credentials: 'me:right' });
    const folder = temporaryFolder();
    const env = {
      ...remote(),
      NGROK_SERVER_ADDR: 'gw.example.com:443',
      HTTPS_PROXY: `http://me:hush-hush@${proxy.address}`,
    };
    const found = await examine(folder, env);
    expect(found('gateway-dns')).toEqual([skip(/^http:\/\/127\.0\.0\.1:\d+ resolves gw\.example\.com/)]);
    expect(found('gateway')).toEqual([failure(/proxy http:\/\/127.*: it responded with 407/, /HTTPS_PROXY.*NO_PROXY/)]);
    expect(JSON.stringify(found('gateway'))).not.toContain('hush');
  });
});

it('a clock outside the certificate’s validity fails', async () => {
  const folder = temporaryFolder();
  const at = (time: number) => examine(folder, remote(), { now: () => time });
  const years = 40 * 365 * 86_400_000;
  expect((await at(Date.now() + years))('clock')).toEqual([failure(/after the gateway's certificate expired/)]);
  expect((await at(Date.parse('2025-01-02T00:00:00Z')))('clock')).toEqual([
    failure(/before the gateway's certificate is valid/),
  ]);
});

it('a second agent with the same AGENT_DOMAIN is not ready, and doctor says what to change', async () => {
  const settings = { ...remote(), AGENT_DOMAIN: 'same.agent.localhost' };
  const first = AgentProcess.inTest(temporaryFolder(), settings);
  await first.ready();
  const folder = temporaryFolder();
  const second = AgentProcess.inTest(folder, settings);
  const api = await second.api();
  await vi.waitFor(async () => {
    const { details } = (await (await fetch(`${api}/readyz`)).json()) as { details?: object };
    expect(details).toEqual({ remote_api: expect.stringContaining('ERR_NGROK_334') });
  }, 20_000);
  const found = await examine(folder, { ...settings, AGENT_PORT: new URL(api).port });
  expect(found('acl')).toEqual([failure(/same\.agent\.localhost.* failed: ERR_NGROK_334/, /same AGENT_DOMAIN/)]);
});

it('a running agent stays unchanged, and its state is reported', async () => {
  const folder = temporaryFolder();
  const { store } = gateway;
  const issued = await store.database.write(() => issueCredential(store, { acl: ['bind:a.run.localhost'] }));
  await keepTunnels(folder, [
    { domain: 'a.run.localhost' },
    { domain: 'b.run.localhost' },
    { domain: 'c.run.localhost', forwards_to: '8.8.8.8:53' },
  ]);
  const settings = { ...remote(), NGROK_AUTHTOKEN: issued.token };
  const agent = AgentProcess.inTest(folder, settings);
  await agent.logged('some tunnels are not online');
  const env = { ...settings, AGENT_PORT: new URL(await agent.api()).port };
  const before = gateway.endpoints.list();
  const found = await examine(folder, env);
  expect(found('agent')).toEqual([success(/^version .* running/)]);
  expect(found('ports')).toEqual([success(/used by the running agent/)]);
  expect(found('authtoken')).toEqual([success(/has been online/)]);
  expect(found('acl')).toEqual([
    success(/^1 tunnel is online/),
    failure(/b\.run.*failed.*ERR_NGROK_316/, /bind:b\.run/),
    failure(/c\.run.*failed.*ERR_AGENT_UPSTREAM_NOT_ALLOWED/, /AGENT_ALLOW_UPSTREAMS/),
  ]);
  expect(gateway.endpoints.list()).toEqual(before);
  // With other settings that agent uses the port.
  const [other] = (await examine(temporaryFolder(), env))('agent');
  expect(other).toEqual(failure(/an agent with a different data folder answers/, /doctor --service.*AGENT_PORT/));
});
