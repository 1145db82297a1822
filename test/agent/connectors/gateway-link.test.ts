import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { GatewayConnector } from '../../../src/agent/connectors/gateway-connector.ts';
import type { GatewayLinkOptions } from '../../../src/agent/connectors/gateway-link.ts';
import { openLink } from '../../../src/agent/open-link.ts';
import { openLocalCa } from '../../../src/gateway/certificates/local-ca/local-ca.ts';
import { NO_PROXIES, type ProxyRules, parseNoProxy, parseProxy } from '../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { CONNECTORS, upstreamAt } from '../../support/connectors.ts';
import { getPublic, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { TestProxy } from '../../support/proxies.ts';
import { NO_IPV6, unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

let gateway: TestGateway;
/** A name that only the proxy resolves. */
let named: string;
let kind: (typeof CONNECTORS)[number];
beforeAll(async () => {
  gateway = await startTestGateway({ domain: 'gw.test' });
  named = `connect.gw.test:${gateway.sessionPort}`;
});
afterAll(() => gateway.close());

const via = (url: string, noProxy = ''): ProxyRules => ({
  ...NO_PROXIES,
  all: parseProxy(url),
  exempt: parseNoProxy(noProxy),
});
/** Sessions since the call: those of agents that stopped earlier end some time after them. */
const newSessions = () => {
  const before = new Set(gateway.sessions.sessions);
  return () => [...gateway.sessions.sessions].filter((session) => !before.has(session));
};
const hosts = () => ({ [named]: gateway.sessionAddress });

function connector(options: Partial<GatewayLinkOptions>, to = gateway): GatewayConnector {
  const link = {
    authtoken: () => to.authtoken,
    serverAddr: named,
    authorities: { pem: to.sessionCa },
    proxies: NO_PROXIES,
    version: '1.0.0',
    log: silentLog,
    clock: systemClock,
    ...options,
  };
  const agent = new GatewayConnector(link, named, () => openLink(kind, link));
  onTestFinished(() => agent.stop());
  return agent;
}

async function online(agent: GatewayConnector): Promise<void> {
  const up = new Promise<void>((resolve) => agent.once('online', resolve));
  await agent.start();
  await up;
}

async function service(host: string): Promise<number> {
  const server = createServer((request, response) => request.pipe(response.writeHead(200)));
  server.on('request', (request, response) => request.method === 'GET' && response.end('the service'));
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

const lastError = (agent: GatewayConnector) =>
  vi.waitFor(() => {
    const { lastError: error } = agent.status;
    if (!error) throw new Error('nothing failed yet');
    return error.message;
  }, 20_000);

describe.each(CONNECTORS)('the %s connector', (each) => {
  beforeEach(() => {
    kind = each;
  });

  describe('through a proxy', () => {
    it.each([
      ['CONNECT', () => TestProxy.http({ hosts: hosts() }), (address: string) => `http://${address}`],
      ['SOCKS 5', () => TestProxy.socks({ hosts: hosts() }), (address: string) => `socks5://${address}`],
      [
        'CONNECT with a password',
        () => TestProxy.http({ hosts: hosts(), credentials: 'me:p@ss' }),
        (address: string) => `me:p%40ss@${address}`,
      ],
      [
        'SOCKS 5 with a password',
        () => TestProxy.socks({ hosts: hosts(), credentials: 'me:p@ss' }),
        (address: string) => `socks5h://me:p%40ss@${address}`,
      ],
    ])('carries tunnels: %s', async (_kind, start, url) => {
      const sessions = newSessions();
      const proxy = await start();
      const agent = connector({ proxies: via(url(proxy.address)) });
      await online(agent);
      expect(agent.status.gateway).toBe(named);
      const upstream = upstreamAt(`http://127.0.0.1:${await service('127.0.0.1')}`);
      const endpoint = await agent.open({ protocol: 'http', domain: 'a.gw.test', upstream, forwardsTo: 'x' });
      expect(await getPublic(gateway, endpoint.url)).toMatchObject({ status: 200, body: 'the service' });
      await agent.stop();
      // The probe before the session used the proxy too. The native connector keeps its connection, the SDK cannot.
      expect(new Set(proxy.asked)).toEqual(new Set([named]));
      expect(proxy.asked.length).toBeGreaterThanOrEqual(kind === 'sdk' ? 2 : 1);
      await expect.poll(() => proxy.open).toBe(0);
      await expect.poll(sessions).toHaveLength(0);
    });

    it('reconnects when the proxy breaks the session', async () => {
      const proxy = await TestProxy.http({ hosts: hosts() });
      const agent = connector({ proxies: via(`http://${proxy.address}`) });
      await online(agent);
      const lost = new Promise<void>((resolve) => agent.once('offline', resolve));
      const back = lost.then(() => new Promise<void>((resolve) => agent.once('online', resolve)));
      proxy.cut();
      await back;
      expect(agent.status).toMatchObject({ state: 'online', reconnects: 1 });
    });

    it.each([
      [
        'wants a password',
        () => TestProxy.http({ credentials: 'me:secret' }),
        'http',
        /responded with 407 .*user and password/,
      ],
      [
        'does not allow it',
        () => TestProxy.http({ refusal: 403 }),
        'http',
        /cannot connect to connect\.gw\.test.*responded with 403/,
      ],
      [
        'wants a password',
        () => TestProxy.socks({ credentials: 'me:secret' }),
        'socks5',
        /requires a user and password/,
      ],
      ['does not allow it', () => TestProxy.socks({ refusal: 2 }), 'socks5', /its rules do not allow the connection/],
      ['does not speak SOCKS', () => TestProxy.http(), 'socks5', /does not speak SOCKS 5/],
    ])('reports the reason when the proxy %s', async (_what, start, scheme, problem) => {
      const proxy = await start();
      const agent = connector({ proxies: via(`${scheme}://${proxy.address}`) });
      await agent.start();
      expect(await lastError(agent)).toMatch(problem);
    });

    it('reports a wrong proxy password without showing it', async () => {
      const proxy = await TestProxy.socks({ credentials: 'me:secret' });
      const agent = connector({ proxies: via(`socks5://me:not-the-secret@${proxy.address}`) });
      await agent.start();
      const message = await lastError(agent);
      expect(message).toMatch(new RegExp(`socks5://${proxy.address} .*user and password rejected`));
      expect(message).not.toContain('not-the-secret');
    });

    it('verifies the gateway’s certificate', async () => {
      const sessions = newSessions();
      const proxy = await TestProxy.http({ hosts: hosts() });
      const { caPem } = await openLocalCa(temporaryFolder(), silentLog);
      const agent = connector({ proxies: via(`http://${proxy.address}`), authorities: { pem: caPem } });
      await agent.start();
      expect(await lastError(agent)).toMatch(/certificate.*certificate presented at its address: CN=connect\.gw\.test/);
      expect(sessions()).toHaveLength(0);
      const impostor = `connect.other.test:${gateway.sessionPort}`;
      const misled = await TestProxy.http({ hosts: { [impostor]: gateway.sessionAddress } });
      const other = connector({ serverAddr: impostor, proxies: via(`http://${misled.address}`) });
      await other.start();
      expect(await lastError(other)).toMatch(/does not match certificate/);
    });

    it('bypasses hosts in NO_PROXY, and accepts one of several CAs', async () => {
      const proxy = await TestProxy.http();
      const { caPem } = await openLocalCa(temporaryFolder(), silentLog);
      for (const pem of [`${caPem}${gateway.sessionCa}`, `${gateway.sessionCa}${caPem}`]) {
        const serverAddr = gateway.sessionAddress;
        const agent = connector({
          serverAddr,
          proxies: via(`http://${proxy.address}`, '127.0.0.0/8'),
          authorities: { pem },
        });
        await online(agent);
        await agent.stop();
        const proxied = connector({ serverAddr, proxies: via(`http://${proxy.address}`), authorities: { pem } });
        await online(proxied);
        await proxied.stop();
      }
      expect(new Set(proxy.asked)).toEqual(new Set([gateway.sessionAddress]));
    });
  });

  describe('on a network with IPv6 only', unless(NO_IPV6), () => {
    it('an agent reaches a gateway and an upstream by their addresses', async () => {
      const six = await startTestGateway({ host: '::1', domain: 'six.test' });
      onTestFinished(() => six.close());
      expect(six.sessionAddress).toBe(`[::1]:${six.sessionPort}`);
      const agent = connector({ serverAddr: six.sessionAddress }, six);
      await online(agent);
      const upstream = upstreamAt(`http://[::1]:${await service('::1')}`);
      const endpoint = await agent.open({ protocol: 'http', domain: 'a.six.test', upstream, forwardsTo: 'x' });
      expect(await getPublic({ ...six, host: '::1' }, endpoint.url)).toMatchObject({
        status: 200,
        body: 'the service',
      });
    });

    it('a gateway on all addresses accepts IPv6 and IPv4', async () => {
      const both = await startTestGateway({ host: '::', domain: 'both.test' });
      onTestFinished(() => both.close());
      for (const serverAddr of [`[::1]:${both.sessionPort}`, `127.0.0.1:${both.sessionPort}`]) {
        const agent = connector({ serverAddr }, both);
        await online(agent);
        const upstream = upstreamAt(`http://[::1]:${await service('::1')}`);
        const endpoint = await agent.open({ protocol: 'http', domain: 'a.both.test', upstream, forwardsTo: 'x' });
        for (const host of ['::1', '127.0.0.1']) {
          expect(await getPublic({ ...both, host }, endpoint.url)).toMatchObject({ status: 200, body: 'the service' });
        }
        await agent.stop();
      }
    });

    it('through a proxy', async () => {
      const six = await startTestGateway({ host: '::1', domain: 'six.test' });
      onTestFinished(() => six.close());
      for (const [proxy, scheme] of [
        [await TestProxy.http(), 'http'],
        [await TestProxy.socks(), 'socks5'],
      ] as const) {
        const agent = connector({ serverAddr: six.sessionAddress, proxies: via(`${scheme}://${proxy.address}`) }, six);
        await online(agent);
        await agent.stop();
        expect(proxy.asked[0]).toBe(six.sessionAddress);
      }
    });
  });
});
