import { createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { TestEdge } from '../../../support/edge.ts';
import { askHttp2, openHttp2 } from '../../../support/http2-client.ts';
import { endOfRequest } from './naive-reader.ts';

const HOST = 'Host: cam.localhost\r\n';
const NEXT = `GET /next HTTP/1.1\r\n${HOST}\r\n`;
const SMUGGLED = `GET /smuggled HTTP/1.1\r\n${HOST}\r\n`;
const CHUNKED = `POST /up HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n`;

let edge: TestEdge;
/** Requests as they reached the upstream, without the headers that the edge adds; their order may change. */
let reached: string[] = [];

beforeAll(async () => {
  edge = await TestEdge.start();
  for (const [host, protocol] of [
    ['cam.localhost', 'http'],
    ['secure.localhost', 'https'],
  ] as const) {
    await edge.serveRaw(host, createServer(serve), { protocol });
  }
});
beforeEach(() => {
  reached = [];
});
afterAll(() => edge.close());

/** Records what arrives, and answers everything that could be the end of a request. */
function serve(socket: Socket): void {
  socket.on('error', () => {});
  let request = '';
  socket.on('data', (bytes: Buffer) => {
    request += bytes.toString('latin1');
    for (let end = endOfRequest(request); end !== -1; end = endOfRequest(request)) {
      reached.push(bare(request.slice(0, end)));
      request = request.slice(end);
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    }
  });
  socket.on('close', () => {
    if (request !== '') reached.push(bare(request));
  });
}

const bare = (text: string) => text.replace(/^(?:Host|X-Forwarded-\w+): .*\r\n/gim, '');

const NEXT_BARE = 'GET /next HTTP/1.1\r\n\r\n';

describe('the upstream receives exactly', () => {
  it.each<[string, string, string[]]>([
    ['a request', NEXT, [NEXT_BARE]],
    [
      'a body of known length, and the request behind it',
      `POST /up HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nhello${NEXT}`,
      ['POST /up HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello', NEXT_BARE],
    ],
    [
      'a request that is the body of another as a body',
      `GET /up HTTP/1.1\r\n${HOST}Content-Length: ${SMUGGLED.length}\r\n\r\n${SMUGGLED}${NEXT}`,
      [`GET /up HTTP/1.1\r\nContent-Length: ${SMUGGLED.length}\r\n\r\n${bare(SMUGGLED)}`, NEXT_BARE],
    ],
    [
      'chunks without their extensions, whatever their sizes look like, joined',
      `${CHUNKED}5;a=b;c="d e"\r\nhello\r\n000A\r\nwide world\r\n000\r\n\r\n${NEXT}`,
      ['POST /up HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nf\r\nhellowide world\r\n0\r\n\r\n', NEXT_BARE],
    ],
    [
      'trailers without those that route or authenticate',
      `${CHUNKED}0\r\nHost: other\r\nAuthorization: a\r\nX-Forwarded-For: ::1\r\nX-Sum: 1\r\n\r\n${NEXT}`,
      ['POST /up HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n', NEXT_BARE],
    ],
    [
      'a transfer-encoding in other letters, between white space',
      `POST /up HTTP/1.1\r\n${HOST}tRANSFER-eNCODING:\t cHUNKED\t\r\n\r\n2\r\nok\r\n0\r\n\r\n${NEXT}`,
      ['POST /up HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n', NEXT_BARE],
    ],
    [
      'a length that Connection tries to take away',
      `POST /up HTTP/1.1\r\n${HOST}Connection: content-length, x-a\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello${NEXT}`,
      ['POST /up HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello', NEXT_BARE],
    ],
    ['one request behind empty lines', `\r\n\r\n${NEXT}`, [NEXT_BARE]],
  ])('%s', async (_what, bytes, expected) => {
    await edge.raw(`${bytes}GET /end HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n`);
    expect(reached.filter((request) => !request.startsWith('GET /end ')).sort()).toEqual(expected.sort());
  });
});

describe('from HTTP/2', () => {
  it.each<[string, Record<string, string>, string, string]>([
    [
      'a body that looks like its own end',
      {},
      `0\r\n\r\n${SMUGGLED}`,
      `Transfer-Encoding: chunked\r\n\r\n${(SMUGGLED.length + 5).toString(16)}\r\n0\r\n\r\n${bare(SMUGGLED)}\r\n0\r\n\r\n`,
    ],
    [
      'a body of known length that looks like a request',
      { 'content-length': String(SMUGGLED.length) },
      SMUGGLED,
      `Content-Length: ${SMUGGLED.length}\r\n\r\n${bare(SMUGGLED)}`,
    ],
  ])('%s stays a body', async (_what, headers, body, framed) => {
    const session = await openHttp2(edge, 'secure.localhost');
    const own = { ':method': 'POST', ':path': '/up', ...headers };
    await askHttp2(session, own, body);
    await askHttp2(session, { ':path': '/next' });
    session.destroy();
    expect(reached).toEqual([`POST /up HTTP/1.1\r\n${framed}`, NEXT_BARE]);
  });
});

const post = (headers: string, body = '') => `POST /up HTTP/1.1\r\n${HOST}${headers}\r\n${body}`;

describe('no smuggled request is read after', () => {
  it.each<[string, string]>([
    ['CL.TE', post('Content-Length: 6\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\nG')],
    ['TE.CL', post('Transfer-Encoding: chunked\r\nContent-Length: 3\r\n', '8\r\nSMUGGLED\r\n0\r\n\r\n')],
    ['TE.TE', post('Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n', '0\r\n\r\n')],
    ['TE.TE the other way', post('Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n')],
    ['chunked twice', post('Transfer-Encoding: chunked, chunked\r\n', '0\r\n\r\n')],
    ['a vertical tab before chunked', post('Transfer-Encoding: \x0bchunked\r\n', '0\r\n\r\n')],
    ['an unknown transfer-encoding', post('Transfer-Encoding: xchunked\r\n', '0\r\n\r\n')],
    ['another transfer-encoding as well', post('Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\n')],
    ['chunked in quotes', post('Transfer-Encoding: "chunked"\r\n', '0\r\n\r\n')],
    ['chunked with a parameter', post('Transfer-Encoding: chunked;a=b\r\n', '0\r\n\r\n')],
    ['an empty transfer-encoding', post('Transfer-Encoding:\r\n', '0\r\n\r\n')],
    ['a length behind chunks', `${CHUNKED}0\r\nContent-Length: 50\r\n\r\n`],
    ['a folded transfer-encoding', post('Transfer-Encoding:\r\n chunked\r\n', '0\r\n\r\n')],
    ['a folded length', post('Content-Length:\r\n 5\r\n', 'hello')],
    ['two equal lengths', post('Content-Length: 5\r\nContent-Length: 5\r\n', 'hello')],
    ['two lengths', post('Content-Length: 0\r\nContent-Length: 5\r\n', 'hello')],
    ['a list of equal lengths', post('Content-Length: 5, 5\r\n', 'hello')],
    ['a hexadecimal length', post('Content-Length: 0x5\r\n', 'hello')],
    ['a negative length', post('Content-Length: -5\r\n', 'hello')],
    ['a signed length', post('Content-Length: +5\r\n', 'hello')],
    ['a length with a space in it', post('Content-Length: 5 5\r\n', 'hello')],
    ['a length beyond numbers', post('Content-Length: 99999999999999999999999\r\n', 'hello')],
    ['an empty length', post('Content-Length:\r\n', '')],
    ['a space before the colon', post('Content-Length : 5\r\n', 'hello')],
    ['a tab before the colon', post('Transfer-Encoding\t: chunked\r\n', '0\r\n\r\n')],
    ['a space before the name', post(' Content-Length: 5\r\n', 'hello')],
    ['a null byte in the name', post('Content-\0Length: 5\r\n', 'hello')],
    ['a null byte in a value', post('X-A: b\0c\r\n')],
    ['a folded header', post('X-A: b\r\n c\r\n')],
    ['a header without a colon', post('Content-Length\r\n', 'hello')],
    ['a header without a name', post(': 5\r\n', 'hello')],
    ['a lone carriage return', post('X-A: 1\rContent-Length: 5\r\n', 'hello')],
    ['a lone line feed', post('X-A: 1\nContent-Length: 5\r\n', 'hello')],
    ['two carriage returns', post('X-A: 1\r\r\nContent-Length: 5\r\n', 'hello')],
    ['a head that ends with line feeds', `GET /up HTTP/1.1\n${HOST.replace('\r', '')}\n`],
    ['a chunk size that is no number', `${CHUNKED}zz\r\nhello\r\n0\r\n\r\n`],
    ['a chunk size in the style of C', `${CHUNKED}0x5\r\nhello\r\n0\r\n\r\n`],
    ['a signed chunk size', `${CHUNKED}+5\r\nhello\r\n0\r\n\r\n`],
    ['a negative chunk size', `${CHUNKED}-1\r\nhello\r\n0\r\n\r\n`],
    ['a chunk size behind a space', `${CHUNKED} 5\r\nhello\r\n0\r\n\r\n`],
    ['a chunk size before a space', `${CHUNKED}5 \r\nhello\r\n0\r\n\r\n`],
    ['an empty chunk size', `${CHUNKED}\r\nhello\r\n0\r\n\r\n`],
    ['a chunk size beyond numbers', `${CHUNKED}fffffffffffffffff\r\nhello\r\n0\r\n\r\n`],
    ['a chunk size that ends with a line feed', `${CHUNKED}5\nhello\r\n0\r\n\r\n`],
    ['a chunk size that ends with two carriage returns', `${CHUNKED}5\r\r\nhello\r\n0\r\n\r\n`],
    ['an extension with a line feed', `${CHUNKED}5;a\nhello\r\n0\r\n\r\n`],
    ['an extension with a carriage return', `${CHUNKED}5;a\rb\r\nhello\r\n0\r\n\r\n`],
    ['a chunk longer than its size', `${CHUNKED}4\r\nhello\r\n0\r\n\r\n`],
    ['a chunk shorter than its size', `${CHUNKED}6\r\nhello\r\n0\r\n\r\n`],
    ['a chunk that ends with a line feed', `${CHUNKED}5\r\nhello\n0\r\n\r\n`],
    ['a last chunk that ends with line feeds', `${CHUNKED}0\n\n`],
    ['a trailer with a lone line feed', `${CHUNKED}0\r\nX-A: 1\n\r\n`],
    ['a target with more than ASCII', `GET /\xe9 HTTP/1.1\r\n${HOST}\r\n`],
    ['a space in the target', `GET /up HTTP/1.1 HTTP/1.1\r\n${HOST}\r\n`],
    ['a tab behind the method', `GET\t/up HTTP/1.1\r\n${HOST}\r\n`],
    ['a version that there is not', `GET /up HTTP/1.7\r\n${HOST}\r\n`],
    ['HTTP/0.9', 'GET /up\r\n'],
    ['HTTP/2 without a handshake', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['chunks in HTTP/1.0', `POST /up HTTP/1.0\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ['CONNECT', `CONNECT cam.localhost:80 HTTP/1.1\r\n${HOST}\r\n`],
    ['an asterisk', `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`],
    ['a whole URL', `GET http://cam.localhost/up HTTP/1.1\r\n${HOST}\r\n`],
    ['no host', 'GET /up HTTP/1.1\r\n\r\n'],
    ['two hosts', `GET /up HTTP/1.1\r\n${HOST}Host: cam.localhost\r\n\r\n`],
  ])('%s', async (_what, bytes) => {
    const text = await edge.raw(bytes + SMUGGLED);
    // At most one response, and no success; closing without a response is as good.
    expect(text.match(/HTTP\/1\.1 \d+/g) ?? []).toEqual(text === '' ? [] : ['HTTP/1.1 400']);
    expect(reached.join()).not.toContain('smuggled');
  });
});
