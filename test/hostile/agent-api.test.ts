import { connect } from 'node:net';
import fc from 'fast-check';
import { expect, it, onTestFinished } from 'vitest';
import { startServer } from '../../src/agent/api/server.ts';
import { UpstreamGuard } from '../../src/agent/upstreams/upstream-guard.ts';
import { parseUpstreamRules } from '../../src/settings/upstream-rules.ts';
import { setUpApi } from '../support/api-set-up.ts';
import { FUZZ_MS, fuzz } from '../support/fuzz.ts';
import { silentLog } from '../support/silent-log.ts';
import { damaged, noise, requestText } from './http-text.ts';
import { isFailureOfOurs, sendBytes, statusOf } from './send-bytes.ts';

/** Names of this machine, and foreign or invalid ones. */
const LOCAL = ['localhost', '127.0.0.1:4040', '[::1]:4040'];
const FOREIGN = [
  'evil.example',
  'localhost.evil.example',
  '127.0.0.1.evil.example',
  '0.0.0.0',
  '10.0.0.1',
  'localhost@evil.example',
  '',
  'localhost:4040:80',
  '[::ffff:127.0.0.1]',
  '2130706433',
  '0x7f.1',
  'localhost, evil.example',
  'localhost#.evil.example',
  '[::1',
  '[::1]evil.example',
];
/** Headers that only other sites' pages or proxies send. */
const TELLTALES = [
  'Origin: https://evil.example',
  'Origin: null',
  'Sec-Fetch-Site: cross-site',
  'Sec-Fetch-Site: same-site',
  'X-Forwarded-For: 6.6.6.6',
  'X-Forwarded-Host: localhost',
  'Forwarded: for=6.6.6.6',
];
const HARMLESS = [
  'Content-Type: application/json',
  'Content-Type: application/json',
  'Content-Type: application/json; charset=utf-16',
  'Content-Type: text/plain',
  'Content-Type: application/json;;;=',
  'Content-Encoding: gzip',
  'Content-Encoding: zstd',
  'Expect: 100-continue',
  'Expect: wonders',
  'Upgrade: websocket',
  'Accept: text/html',
  'X-HTTP-Method-Override: DELETE',
  'Authorization: Bearer x',
  'Range: bytes=0-',
  `Cookie: ${'c'.repeat(3_000)}`,
  'If-None-Match: *',
];

const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', maxDepth: 4 },
    fc.constantFrom<unknown>(
      null,
      true,
      -1,
      0,
      8001,
      1e308,
      65_536,
      '',
      'http',
      'tcp',
      'tls',
      '8001',
      'camera.lan:80',
      'unix:/run/docker.sock',
      `unix:/${'x'.repeat(90)}`,
      '[::1]:80',
      'a.localhost',
      'agent.localhost',
      '*.localhost',
      'a.localhost:22',
      '\u0000',
      '\ud800',
      'x'.repeat(5_000),
    ),
    fc.string(),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(
      fc.oneof(
        fc.constantFrom(
          'protocol',
          'forwards_to',
          'domain',
          'policy',
          'inbound',
          'outbound',
          'on_http_request',
          'expressions',
          'actions',
          'type',
          'config',
          '__proto__',
          'constructor',
          'toJSON',
        ),
        fc.string(),
      ),
      tie('value'),
      { maxKeys: 5 },
    ),
  ),
}));
const tunnel = fc.record(
  {
    protocol: fc.oneof(fc.constant('http'), value),
    forwards_to: fc.oneof(fc.constant('8001'), value),
    domain: fc.oneof(fc.constant('cam.localhost'), value),
    policy: value,
  },
  { requiredKeys: [] },
);
const bodies = fc.oneof(
  fc.oneof(tunnel, value).map((body) => JSON.stringify(body) ?? ''),
  fc.string(),
  fc.constantFrom('['.repeat(50_000), `{"policy":${'{"a":'.repeat(20_000)}`, '1e999', '"\\ud800"'),
);

const request = requestText({
  methods: [
    'GET',
    'POST',
    'POST',
    'DELETE',
    'HEAD',
    'OPTIONS',
    'PUT',
    'PATCH',
    'TRACE',
    'PROPFIND',
    'CONNECT',
    'get',
    'EVIL',
    '',
  ],
  segments: ['tunnels', 'tunnels/cam', 'tunnels/cam.localhost', 'healthz', 'readyz', 'status', 'metrics'],
  hosts: [...LOCAL, ...LOCAL, ...LOCAL, ...FOREIGN],
  headers: [...HARMLESS, ...TELLTALES],
  bodies,
});

async function setUp() {
  const guard = new UpstreamGuard(parseUpstreamRules('loopback,private,unix'), async () => []);
  const { local, connector, tunnels } = await setUpApi({ guard });
  const server = await startServer(local, { host: '127.0.0.1', port: 0 }, silentLog);
  onTestFinished(() => server.close(0));
  const isWell = async () => {
    const response = await fetch(`http://${server.address}/tunnels`);
    expect(response.status).toBe(200);
    const listed = (await response.json()) as { url: string }[];
    const urls = listed.map(({ url }) => url);
    // The open endpoints are exactly the listed ones.
    expect(urls.toSorted()).toEqual([...connector.bound.keys()].toSorted());
  };
  return { port: server.port ?? 0, tunnels, isWell };
}

/** Checks that an error response has the common format. */
function expectHonest(answer: string, method: string): void {
  const status = statusOf(answer);
  if (status === null) return;
  expect(isFailureOfOurs(status), answer).toBe(false);
  if (status >= 400 && method !== 'HEAD') {
    expect(JSON.parse(answer.slice(answer.lastIndexOf('\r\n\r\n') + 4))).toMatchObject({
      error_code: expect.any(String),
      status_code: status,
      msg: expect.any(String),
    });
  }
}

it('any API request is answered or rejected, and only local callers are accepted', {
  timeout: FUZZ_MS,
}, async () => {
  const { port, isWell } = await setUp();
  await fc.assert(
    fc.asyncProperty(request, async ({ text, host, headers, method }) => {
      const answer = await sendBytes(port, text);
      expectHonest(answer, method);
      if (FOREIGN.includes(host) || headers.some((header) => TELLTALES.includes(header))) {
        expect(statusOf(answer) ?? 400, answer).toBeGreaterThanOrEqual(400);
      }
    }),
    fuzz(250),
  );
  await isWell();
});

it('malformed requests affect no other client', { timeout: FUZZ_MS }, async () => {
  const { port, isWell } = await setUp();
  const anything = fc.oneof(damaged(request), noise);
  await fc.assert(
    fc.asyncProperty(anything, async ({ text }) => {
      const answer = await sendBytes(port, text);
      expect(isFailureOfOurs(statusOf(answer)), answer).toBe(false);
    }),
    fuzz(150),
  );
  await isWell();
});

it('a URL without a valid path is answered like any other', async () => {
  const { port } = await setUp();
  const answer = await sendBytes(
    port,
    'GET http://evil.example@ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
  );
  expect(statusOf(answer)).toBe(404);
  expectHonest(answer, 'GET');
});

it('an endless body is rejected early and disconnected', async () => {
  const { port, isWell } = await setUp();
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  let answer = '';
  socket.on('data', (bytes) => {
    answer += bytes;
  });
  const head =
    'POST /tunnels HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';
  socket.write(head);
  const chunk = Buffer.from(`10000\r\n${' '.repeat(0x10000)}\r\n`);
  const more = () => {
    while (!socket.destroyed && socket.write(chunk));
  };
  socket.on('drain', more);
  more();
  await new Promise((resolve) => socket.once('close', resolve));
  // The system buffers a few MiB for a peer that stops reading.
  expect(socket.bytesWritten).toBeLessThan(64 * 1024 * 1024);
  expect(statusOf(answer) ?? 413).toBe(413);
  await isWell();
});
