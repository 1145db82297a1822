import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { collect, TestEdge } from '../../../support/edge.ts';
import { openHttp2 } from '../../../support/http2-client.ts';

let edge: TestEdge;
let seen: string[];

beforeAll(async () => {
  edge = await TestEdge.start();
  const record = async (req: IncomingMessage, res: ServerResponse) => {
    await collect(req);
    seen = [...req.rawHeaders, ...req.rawTrailers];
    res.end('ok');
  };
  await edge.serve('plain.localhost', record);
  await edge.serve('secure.localhost', record, { protocol: 'https' });
});
afterAll(() => edge.close());

/** CGI, WSGI and the like read these as a header that the gateway writes or removes. */
const LOOKALIKES = [
  ['x_forwarded_for', '203.0.113.1'],
  ['x-forwarded_proto', 'gopher'],
  ['x_forwarded-host', 'evil'],
  ['content_length', '7'],
  ['transfer_encoding', 'chunked'],
  ['proxy_authorization', 'evil'],
] as const;
const KEPT = [
  ['api_key', 'kept'],
  ['x_request_id', 'kept'],
] as const;
const lines = (fields: readonly (readonly [string, string])[]) =>
  fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
const headersOf = (wanted: RegExp) => seen.filter((name, at) => at % 2 === 0 && wanted.test(name));

const UNDERSCORE = /_/;
const KEPT_NAMES = KEPT.map(([name]) => name);

it.each([
  ['as headers', `POST / HTTP/1.1\r\nHost: plain.localhost\r\n${lines([...LOOKALIKES, ...KEPT])}`, ''],
  ['as trailers', 'POST / HTTP/1.1\r\nHost: plain.localhost\r\n', lines([...LOOKALIKES, ...KEPT])],
])(
  'names with underscores do not reach the upstream when they equal others with hyphens, %s',
  async (_as, head, trailers) => {
    const framing = 'Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n';
    expect(await edge.raw(`${head}${framing}${trailers}\r\n`)).toMatch(/^HTTP\/1\.1 200 /);
    expect(headersOf(UNDERSCORE)).toEqual(KEPT_NAMES);
  },
);

it('nor do those that equal a header named in Connection', async () => {
  const named = 'Connection: close, x-a, x_b\r\nx-a: 1\r\nx_a: 1\r\nx_b: 1\r\nx-b: 1\r\n';
  await edge.raw(`GET / HTTP/1.1\r\nHost: plain.localhost\r\n${named}\r\n`);
  expect(headersOf(/^x.[ab]$/)).toEqual([]);
});

it('nor do they over HTTP/2', async () => {
  const session = await openHttp2(edge, 'secure.localhost');
  onTestFinished(() => session.destroy());
  const stream = session.request({ ':path': '/', ...Object.fromEntries([...LOOKALIKES, ...KEPT]) });
  await collect(stream);
  expect(headersOf(UNDERSCORE)).toEqual(KEPT_NAMES);
  expect(headersOf(/^x-forwarded/i)).toEqual(['X-Forwarded-For', 'X-Forwarded-Proto', 'X-Forwarded-Host']);
});
