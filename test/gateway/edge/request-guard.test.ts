import { afterAll, beforeAll, expect, it } from 'vitest';
import { TestEdge } from '../../support/edge.ts';
import { ask } from '../../support/http-request.ts';

let edge: TestEdge;
/** Requests that reached the upstream. */
let reached: string[] = [];

beforeAll(async () => {
  edge = await TestEdge.start();
  await edge.serve('cam.localhost', (req, res) => {
    reached.push(`${req.method} ${req.url}`);
    req.resume().on('end', () => res.end('ok'));
  });
});
afterAll(() => edge.close());

const HOST = 'Host: cam.localhost\r\n';
const SMUGGLED = 'GET /smuggled HTTP/1.1\r\nHost: cam.localhost\r\n\r\n';

it.each([
  [
    'length and transfer-encoding',
    `POST / HTTP/1.1\r\n${HOST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
  ],
  [
    'transfer-encoding and length',
    `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n`,
  ],
  ['two lengths', `POST / HTTP/1.1\r\n${HOST}Content-Length: 0\r\nContent-Length: 44\r\n\r\n`],
  ['a list of lengths', `POST / HTTP/1.1\r\n${HOST}Content-Length: 0, 44\r\n\r\n`],
  ['a signed length', `POST / HTTP/1.1\r\n${HOST}Content-Length: +4\r\n\r\nabcd`],
  ['an unknown transfer-encoding', `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: xchunked\r\n\r\n`],
  [
    'a doubled transfer-encoding',
    `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n`,
  ],
  ['gzip as a transfer-encoding', `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
  ['chunked in HTTP/1.0', `POST / HTTP/1.0\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
  ['a space before the colon', `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n`],
  ['a folded header', `GET / HTTP/1.1\r\n${HOST}X-A: b\r\n c\r\n\r\n`],
  ['bare line feeds', `GET / HTTP/1.1\n${HOST.replace('\r', '')}\n`],
  ['a bare line feed in a header', `GET / HTTP/1.1\r\n${HOST}X-A: b\nX-B: c\r\n\r\n`],
  ['a bare carriage return', `GET / HTTP/1.1\r\n${HOST}X-A: b\rX-B: c\r\n\r\n`],
  ['a null byte', `GET / HTTP/1.1\r\n${HOST}X-A: b\0c\r\n\r\n`],
  ['a chunk size that is no number', `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\n`],
  ['no Host', 'GET / HTTP/1.1\r\n\r\n'],
  ['two Hosts', `GET / HTTP/1.1\r\n${HOST}Host: other.localhost\r\n\r\n`],
  ['a whole URL', `GET http://other.localhost/ HTTP/1.1\r\n${HOST}\r\n`],
  ['an asterisk', `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`],
])('refuses %s and closes the connection', async (_what, bytes) => {
  reached = [];
  const text = await edge.raw(bytes + SMUGGLED);
  expect(text).toMatch(/^HTTP\/1\.1 400 /);
  expect(text.match(/HTTP\/1\.1 /g)).toHaveLength(1);
  expect(reached.join()).not.toContain('smuggled');
});

it('refuses a header block larger than it keeps', async () => {
  const text = await edge.raw(`GET / HTTP/1.1\r\n${HOST}X-A: ${'a'.repeat(70_000)}\r\n\r\n`);
  expect(text).toMatch(/^HTTP\/1\.1 431 /);
});

it('refuses more headers than anybody sends', async () => {
  const many = Array.from({ length: 300 }, (_, at) => `X-${at}: 1\r\n`).join('');
  expect(await edge.raw(`GET / HTTP/1.1\r\n${HOST}${many}\r\n`)).toMatch(/^HTTP\/1\.1 400 /);
});

it('goes on serving others', async () => {
  expect((await ask(edge.httpPort, 'cam.localhost')).body).toBe('ok');
});
