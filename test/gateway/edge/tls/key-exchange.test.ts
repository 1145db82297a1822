import { once } from 'node:events';
import { type ConnectionOptions, connect, createServer, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { connectToGateway, type GatewaySocketOptions } from '../../../../src/agent/connectors/gateway-socket.ts';
import { connectUpstream } from '../../../../src/agent/upstreams/connect-upstream.ts';
import { UpstreamGuard } from '../../../../src/agent/upstreams/upstream-guard.ts';
import { issueApiKey } from '../../../../src/gateway/store/tokens.ts';
import { directDial } from '../../../../src/lib/network/dial.ts';
import { parseUpstream } from '../../../../src/lib/network/upstream-address.ts';
import { connectInspected } from '../../../../src/lib/tls/client-handshake.ts';
import { ManagementClient } from '../../../../src/management/client.ts';
import { parseUpstreamRules } from '../../../../src/settings/upstream-rules.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { serving } from '../../../support/loopback.ts';
import { selfSigned } from '../../../support/self-signed.ts';
import { type Tap, tapped } from '../../../support/tapped-tls.ts';

/** OpenSSL has ML-KEM since 3.5; Node.js 20 has 3.0. */
const HAS_HYBRID = Number.parseFloat(process.versions.openssl) >= 3.5;
const EXPECTED = HAS_HYBRID ? 'X25519MLKEM768' : 'X25519';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.close());

/** Connects as a client of the gateway's HTTPS port does. @returns how it answers a request */
async function ask(port: number, host: string, more: ConnectionOptions = {}): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', servername: host, ca: gateway.sessionCa, ...more });
  onTestFinished(() => void socket.destroy());
  await once(socket, 'secureConnect');
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  return String(answer).split('\r\n', 1)[0] ?? '';
}

/** A device's connection to the port for sessions. */
async function connectAgent({ port }: Tap, more: Partial<GatewaySocketOptions> = {}): Promise<TLSSocket> {
  const address = { host: '127.0.0.1', port, serverName: 'connect.localhost' };
  const options = { address, dial: directDial(), ca: gateway.sessionCa, ...more };
  const socket = await connectToGateway(options, AbortSignal.timeout(10_000));
  onTestFinished(() => void socket.destroy());
  return socket;
}

const startUpstream = async () => serving(createServer(await selfSigned(), (socket) => socket.on('error', () => {})));

describe(`with OpenSSL ${process.versions.openssl}, keys are exchanged by ${EXPECTED}`, () => {
  const WAYS: Record<string, () => Promise<Tap>> = {
    'between a client and the edge': async () => {
      const tap = await tapped(gateway.httpsPort);
      expect(await ask(tap.port, 'a.localhost')).toBe('HTTP/1.1 404 Not Found');
      return tap;
    },
    'in a session of a device': async () => {
      const tap = await tapped(gateway.sessionPort);
      await connectAgent(tap);
      return tap;
    },
    'between a client and the management API': async () => {
      const tap = await tapped(gateway.httpsPort);
      const { token } = await gateway.store.database.write(() => issueApiKey(gateway.store, {}));
      const url = new URL(gateway.apiUrl);
      url.port = String(tap.port);
      const client = new ManagementClient({ baseUrl: url.origin, apiKey: token, ca: gateway.sessionCa });
      await client.devices.list();
      return tap;
    },
    'between a device and an https upstream': async () => {
      const tap = await tapped(await startUpstream());
      const upstream = parseUpstream(`https://127.0.0.1:${tap.port}`);
      const guard = new UpstreamGuard(parseUpstreamRules('loopback'));
      const socket = await connectUpstream(upstream, { guard, verifyTls: false, connectMs: 5_000 });
      onTestFinished(() => void socket.destroy());
      return tap;
    },
    'between the gateway and a server that a policy names': async () => {
      const tap = await tapped(await startUpstream());
      const place = { host: '127.0.0.1', port: tap.port, rejectUnauthorized: false };
      const socket = connectInspected(place, { owner: 'test', charge: () => {} });
      onTestFinished(() => void socket.destroy());
      await once(socket, 'secureConnect');
      return tap;
    },
  };
  it.each(Object.keys(WAYS))('%s', async (way) => {
    expect((await WAYS[way]?.())?.group).toBe(EXPECTED);
  });

  it('but not with the SDK, which has no ML-KEM', async () => {
    const tap = await tapped(gateway.sessionPort);
    const session = await agentSession(gateway, `127.0.0.1:${tap.port}`).connect();
    onTestFinished(() => session.close());
    expect(tap.group).toBe('X25519');
  });

  it('but not on a metered link, whose ClientHello is short', async () => {
    const tap = await tapped(gateway.sessionPort);
    await connectAgent(tap, { isMetered: true });
    expect(tap.group).toBe('X25519');
    expect(tap.helloBytes).toBeLessThan(400);
  });
});

it.each([1, 2, 10])(
  'a ClientHello of more than 2 KB in %i pieces is read, by the edge and by the port for sessions',
  async (pieces) => {
    // As long as one with further keys would be.
    const ALPNProtocols = ['http/1.1', ...Array.from({ length: 10 }, (_, at) => `${at}`.padEnd(200, 'x'))];
    const edge = await tapped(gateway.httpsPort, pieces);
    expect(await ask(edge.port, 'a.localhost', { ALPNProtocols })).toBe('HTTP/1.1 404 Not Found');
    const sessions = await tapped(gateway.sessionPort, pieces);
    const agent = connect({
      port: sessions.port,
      servername: 'connect.localhost',
      ca: gateway.sessionCa,
      ALPNProtocols,
    });
    onTestFinished(() => void agent.destroy());
    await once(agent, 'secureConnect');
    for (const { helloBytes } of [edge, sessions]) expect(helloBytes).toBeGreaterThan(2_000);
  },
);
