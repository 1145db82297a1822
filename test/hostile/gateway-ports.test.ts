import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { Duplex } from 'node:stream';
import { type ConnectionOptions, connect } from 'node:tls';
import { encode } from 'dns-packet';
import fc from 'fast-check';
import pino from 'pino';
import { expect, it, onTestFinished } from 'vitest';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { allOperations } from '../../src/management/operations.ts';
import { upstream } from '../gateway/sessions/session-gateway.ts';
import { FUZZ_MS, fuzz } from '../support/fuzz.ts';
import { agentSession, getPublic, startTestGateway } from '../support/gateway.ts';
import { damaged, noise, requestText } from './http-text.ts';
import { isFailureOfOurs, sendBytes, statusOf } from './send-bytes.ts';

/** A gateway with a management API, a real agent with an https tunnel, and a log of unexpected errors. */
async function setUp() {
  const errors: string[] = [];
  const log = pino({ level: 'error' }, { write: (line: string) => errors.push(line) });
  const challengeDns = { host: '127.0.0.1', port: 0, nameServer: 'ns.localhost' };
  const gateway = await startTestGateway({ log, challengeDns });
  onTestFinished(() => gateway.close());
  const { store } = gateway;
  const { token: apiKey } = await store.database.write(() => issueApiKey(store, {}));
  const port = await upstream((req, res) => req.resume().on('end', () => res.end('here')));
  const session = await agentSession(gateway).connect();
  onTestFinished(() => session.close());
  const listener = await session.httpEndpoint().domain('cam.localhost').listen(false);
  listener.forward(`http://127.0.0.1:${port}`).catch(() => {});

  const isWell = async () => {
    expect(await getPublic(gateway, 'https://cam.localhost/')).toMatchObject({ status: 200, body: 'here' });
    const headers = { Authorization: `Bearer ${apiKey}`, 'Service-Version': '2' };
    expect((await getPublic(gateway, 'https://api.localhost/reserved_domains', headers)).status).toBe(200);
    const another = await agentSession(gateway).connect();
    await another.close();
    expect(errors).toEqual([]);
  };
  const tls = (servername: string): ConnectionOptions => ({
    ca: gateway.sessionCa,
    servername,
    checkServerIdentity: () => undefined,
  });
  return { gateway, apiKey, errors, isWell, tls };
}

const paths = allOperations().map(({ operation }) => operation.path.slice(1).replace('{id}', 'rd_x'));
const BODIES = [
  '{}',
  '[]',
  'null',
  '{"domain":"a.example.com"}',
  '{"hostports":["a.example.com:443"]}',
  '{"acl":["bind:*"]}',
  '{"__proto__":{"a":1}}',
  `{"metadata":"${'x'.repeat(5_000)}"}`,
  '['.repeat(20_000),
  '{"cidr":"10.0.0.0/8"}',
  'not json',
  '{"value":"{}"}',
  '5\r\nhello\r\n0\r\n\r\n',
];
const HEADERS = [
  'Content-Type: application/json',
  'Content-Type: text/plain',
  'Content-Encoding: gzip',
  'Ngrok-Version: 2',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'Connection: upgrade',
  'Expect: 100-continue',
  'Expect: wonders',
  'X-Forwarded-For: 127.0.0.1',
  'X-Forwarded-Host: api.localhost',
  'Host: cam.localhost',
  'Transfer-Encoding: gzip, chunked',
  'TE: trailers',
  'Accept: text/html',
  `Cookie: ${'c'.repeat(20_000)}`,
  'Range: bytes=0-',
  'Max-Forwards: 0',
  'Authorization: Basic Og==',
];

it('any HTTP or HTTPS request is answered or rejected, never with an internal error', {
  timeout: FUZZ_MS,
}, async () => {
  const { gateway, apiKey, isWell, tls } = await setUp();
  const request = requestText({
    methods: ['GET', 'POST', 'PATCH', 'PUT', 'DELETE', 'HEAD', 'OPTIONS', 'TRACE', 'CONNECT', 'PRI', 'get', ''],
    segments: [
      ...paths,
      ...paths.map((path) => `${path}?limit=1&before_id=x`),
      '.well-known/acme-challenge/x',
      'openapi.json',
      '',
    ],
    hosts: [
      'api.localhost',
      'api.localhost',
      'API.localhost.:443',
      'cam.localhost',
      'connect.localhost',
      'unknown.localhost',
      '',
      'localhost',
      '[::1]',
      'cam.localhost:99999',
      '%63am.localhost',
      '*.localhost',
      'cam.localhost@evil.example',
    ],
    headers: [
      ...HEADERS,
      `Authorization: Bearer ${apiKey}\r\nService-Version: 2`,
      `Authorization: Bearer ${apiKey}\r\nService-Version: 2`,
    ],
    bodies: fc.constantFrom(...BODIES),
  });
  const names = fc.constantFrom('api.localhost', 'api.localhost', 'cam.localhost', 'unknown.localhost', null);
  await fc.assert(
    fc.asyncProperty(
      fc.oneof({ weight: 4, arbitrary: request }, damaged(request), noise),
      names,
      async ({ text }, name) => {
        const answer =
          name === null ? await sendBytes(gateway.httpPort, text) : await sendBytes(gateway.httpsPort, text, tls(name));
        expect(isFailureOfOurs(statusOf(answer)), answer).toBe(false);
      },
    ),
    fuzz(60),
  );
  await isWell();
});

/** A TLS ClientHello. */
function helloTo(servername: string): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = new Duplex({ read() {}, write: (bytes: Buffer) => resolve(bytes) });
    connect({ socket, servername, ALPNProtocols: ['h2', 'http/1.1'] }).on('error', () => {});
  });
}

it('arbitrary bytes instead of a handshake affect no other client', { timeout: FUZZ_MS }, async () => {
  const { gateway, isWell } = await setUp();
  const hellos = await Promise.all(
    ['cam.localhost', 'connect.localhost', 'api.localhost', 'unknown.localhost', 'x'.repeat(250)].map(helloTo),
  );
  const texts = fc.constantFrom(...hellos).map((bytes) => ({ text: bytes.toString('latin1') }));
  await fc.assert(
    fc.asyncProperty(fc.oneof({ weight: 3, arbitrary: damaged(texts) }, noise), fc.nat(600), async ({ text }, keep) => {
      const bytes = Buffer.from(text, 'latin1');
      await sendBytes(gateway.httpsPort, keep < 300 ? bytes.subarray(0, keep) : bytes);
    }),
    fuzz(50),
  );
  await isWell();
});

it('malformed packets do not stop the DNS server', { timeout: FUZZ_MS }, async () => {
  const { gateway, errors } = await setUp();
  const socket = createSocket('udp4');
  onTestFinished(() => void socket.close());
  const port = gateway.dnsPort ?? 0;
  const question = encode({ type: 'query', id: 4711, questions: [{ type: 'SOA', name: 'acme.localhost' }] });
  const packets = fc.oneof(damaged(fc.constant({ text: question.toString('latin1') })), noise);
  await fc.assert(
    fc.asyncProperty(packets, async ({ text }) => {
      await new Promise((resolve) => socket.send(Buffer.from(text, 'latin1'), port, '127.0.0.1', resolve));
    }),
    fuzz(20),
  );
  const other = createSocket('udp4');
  onTestFinished(() => void other.close());
  // The packets exhaust the rate limit of their network for a second.
  const asking = setInterval(() => other.send(question, port, '127.0.0.1'), 100);
  onTestFinished(() => clearInterval(asking));
  const [answer] = (await once(other, 'message')) as [Buffer];
  expect(answer.readUInt16BE(0)).toBe(4711);
  expect(errors).toEqual([]);
});
