import { once } from 'node:events';
import { connect, createServer as createPlainServer, type Server } from 'node:net';
import { createServer } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { probeGateway, waitUntilReachable } from '../../../src/agent/connectors/gateway-probe.ts';
import { CLOUD_CA as OTHER_CA } from '../../../src/agent/connectors/gateway-route.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { serving } from '../../support/loopback.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

const DAY_MS = 86_400_000;

const CONNECTED = { host: 'gateway.test', serverName: 'gateway.test' };

/** Probes a server on loopback as `gateway.test`. */
async function probed(server: Server, ca: string | Uint8Array = OTHER_CA, clock?: SteeredClock) {
  const port = await serving(server);
  const dial = async () => {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    return socket;
  };
  const trust = { ca, adviceOnCa: 'do this' };
  const probing = probeGateway({ ...CONNECTED, port }, dial, trust, AbortSignal.timeout(60_000), clock);
  return clock ? clock.advanceUntil(probing) : probing;
}

const tlsServer = (issued: { certificatePem: string; privateKeyPem: string }) =>
  createServer({ cert: issued.certificatePem, key: issued.privateKeyPem });

it.each<[string, number, number, RegExp | null, boolean?]>([
  ['a certificate that is not valid yet', 2, 30, /^the clock of this machine shows \S+, before .*; set the clock$/],
  [
    'an expired certificate',
    -30,
    -2,
    /^the clock of this machine shows \S+, after .* expired .*; set the clock or renew/,
  ],
  [
    'a certificate of an unknown CA',
    -2,
    30,
    /^signed by CN=gateway\.test, a CA that is not trusted here; do this$/,
    false,
  ],
  ['a valid certificate', -2, 30, null],
])('says what is wrong with %s', async (_what, from, to, problem, isTrusted = true) => {
  const issued = await issueCertificate({
    subject: 'CN=gateway.test',
    names: ['gateway.test'],
    notBefore: new Date(Date.now() + from * DAY_MS),
    notAfter: new Date(Date.now() + to * DAY_MS),
  });
  const answer = await probed(tlsServer(issued), isTrusted ? issued.certificatePem : OTHER_CA);
  expect(answer.certificate).toBe('CN=gateway.test');
  if (problem === null) expect(answer.problem).toBeNull();
  else expect(answer.problem).toMatch(problem);
});

it('says when the handshake is broken off by an alert', async () => {
  const alert = Buffer.from([21, 3, 1, 0, 2, 2, 40]);
  const { problem } = await probed(createPlainServer((socket) => socket.end(alert)));
  expect(problem).toMatch(/^it breaks off the TLS handshake \(ERR_SSL_.*ALERT.*NGROK_SERVER_ADDR/);
});

describe('names a captive portal that', () => {
  it.each(['of its own CA', 'of a CA that is trusted'])('presents a certificate %s', async (which) => {
    const issued = await issueCertificate({ subject: 'CN=portal.hotel.example', names: ['portal.hotel.example'] });
    const { problem } = await probed(tlsServer(issued), which === 'of its own CA' ? OTHER_CA : issued.certificatePem);
    expect(problem).toMatch(/for another name.*captive portal.*NGROK_SERVER_ADDR/);
  });

  it('redirects to its page', async () => {
    const { certificate, problem } = await probed(
      createPlainServer((socket) => socket.end('HTTP/1.1 302 Found\r\nLocation: http://portal.hotel.example/\r\n\r\n')),
    );
    expect(certificate).toBeNull();
    expect(problem).toMatch(/does not answer with TLS.*captive portal.*NGROK_SERVER_ADDR/);
  });

  it('accepts connections and is silent', async () => {
    const silent = createPlainServer((socket) => socket.on('error', () => {}).resume());
    await expect(probed(silent, OTHER_CA, new SteeredClock())).rejects.toThrow(/no answer within 12 s.*captive portal/);
  });
});

it('probes a gateway that has accepted the connection more seldom: its process is being replaced', async () => {
  const within8s = async (isConnected: boolean) => {
    const clock = new SteeredClock();
    const over = new AbortController();
    let probes = 0;
    const probe = (_: AbortSignal, onConnected?: () => void) => {
      probes += 1;
      if (isConnected) onConnected?.();
      return new Promise<never>(() => {});
    };
    const waiting = waitUntilReachable(probe, { clock }, over.signal, () => {});
    await clock.advanceUntil(clock.sleep(8_000));
    over.abort();
    await expect(waiting).rejects.toThrow();
    return probes;
  };
  expect(await within8s(false)).toBeGreaterThan(5);
  expect(await within8s(true)).toBeLessThanOrEqual(3);
});
