import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { createServer as createTlsServer } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { syslogSink } from '../../../src/gateway/events/syslog.ts';
import type { SyslogTarget } from '../../../src/gateway/store/events.ts';
import { cidrList } from '../../../src/lib/network/ip-address.ts';
import { publicAddress } from '../../../src/traffic-policy/public-request.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { until } from '../../support/until.ts';
import { auditRow } from './audit-row.ts';

const LOOPBACK = cidrList(['127.0.0.0/8']);
const { signal } = new AbortController();
const sinkAt = (port: number, transport: SyslogTarget['transport']) =>
  syslogSink({ kind: 'syslog', host: '127.0.0.1', port, transport }, (host) => publicAddress(host, LOOPBACK));
/** An event as the server gets it. */
const message = (number: number) =>
  new RegExp(
    `^<109>1 2026-11-26T20:00:00Z ${hostname()} device-agent - ip_policy_created - \\{"event_id":"evt_${number}",.*\\}$`,
  );

async function listening(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** What comes with its length before it. */
function framed(text: string): string[] {
  const frames: string[] = [];
  for (let rest = Buffer.from(text); rest.length > 0; ) {
    const space = rest.indexOf(' ');
    const end = space + 1 + Number(rest.subarray(0, space));
    frames.push(rest.toString('utf8', space + 1, end));
    rest = rest.subarray(end);
  }
  return frames;
}

it('sends messages of RFC 5424 over TCP, each behind its length', async () => {
  let received = '';
  const server = createServer((socket) => socket.setEncoding('utf8').on('data', (text) => (received += text)));
  const port = await listening(server);
  await sinkAt(port, 'tcp').send([auditRow(1, 'Zürich'), auditRow(2)], signal);
  await until(() => framed(received).length === 2, 'messages');
  expect(framed(received)).toEqual([expect.stringMatching(message(1)), expect.stringMatching(message(2))]);
  expect(received).toContain('Zürich');
});

it('ends each message with a line feed, if the server expects that, and trusts the CA of the destination', async () => {
  let received = '';
  const issuer = await issueCertificate({ subject: 'CN=own', ca: true });
  const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=l', names: ['logs.test'], issuer });
  const server = createTlsServer({ cert: certificatePem, key: privateKeyPem });
  server.on('secureConnection', (socket: Socket) =>
    socket.setEncoding('utf8').on('data', (text) => (received += text)),
  );
  server.on('tlsClientError', () => {});
  const place = { kind: 'syslog', host: 'logs.test', port: await listening(server), transport: 'tls' } as const;
  const resolve = async () => '127.0.0.1';
  await expect(syslogSink(place, resolve).send([auditRow(1)], signal)).rejects.toThrow(/certificate/);
  const sink = syslogSink({ ...place, framing: 'lf', ca_pem: issuer.certificatePem }, resolve);
  await sink.send([auditRow(1, 'two\nlines'), auditRow(2)], signal);
  await until(() => received.split('\n').length === 3, 'messages');
  const matches = [expect.stringMatching(message(1)), expect.stringMatching(message(2)), ''];
  expect(received.split('\n')).toEqual(matches);
});

it('sends a datagram for each event over UDP', async () => {
  const server = createSocket('udp4');
  onTestFinished(() => void server.close());
  const received: string[] = [];
  server.on('message', (text) => received.push(String(text)));
  server.bind(0, '127.0.0.1');
  await once(server, 'listening');
  await sinkAt(server.address().port, 'udp').send(
    [auditRow(1), auditRow(2, 'lang ä'.repeat(20_000)), auditRow(3, `.${'lang ä'.repeat(20_000)}`)],
    signal,
  );
  await until(() => received.length === 3, 'datagrams');
  expect(received[0]).toMatch(message(1));
  // Up to a whole character.
  const sizes = received.slice(1).map((text) => Buffer.byteLength(text));
  expect(sizes.every((size) => size > 64_990 && size <= 65_000)).toBe(true);
  expect(received.join('')).not.toContain('\ufffd');
});

it.each<[SyslogTarget['transport'], (socket: Socket) => void]>([
  ['tcp', (socket) => socket.resetAndDestroy()],
  ['tls', () => {}],
])('fails over %s when the server drops the connection, or has no valid certificate', async (transport, onSocket) => {
  let received = '';
  const server = transport === 'tls' ? createTlsServer(await selfSigned()) : createServer(onSocket);
  server.on('secureConnection', (socket: Socket) => socket.on('data', (text) => (received += text)));
  server.on('tlsClientError', () => {});
  const port = await listening(server);
  await expect(sinkAt(port, transport).send([auditRow(1)], signal)).rejects.toThrow(/reset|EPIPE|self.signed/i);
  expect(received).toBe('');
});

it('sends nothing into networks that are not public', async () => {
  const sink = syslogSink({ kind: 'syslog', host: '127.0.0.1', port: 514, transport: 'udp' }, publicAddress);
  await expect(sink.send([auditRow(1)], signal)).rejects.toThrow('127.0.0.1 is not on the public internet');
});
