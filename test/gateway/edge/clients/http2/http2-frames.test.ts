import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { StreamsExhausted } from '../../../../../src/gateway/endpoints/online-endpoint.ts';
import { type DirectEndpoint, TestEdge } from '../../../../support/edge.ts';
import { askHttp2, openHttp2 } from '../../../../support/http2-client.ts';
import {
  block,
  Code,
  type Fields,
  Flag,
  Frame,
  frame,
  RawHttp2,
  requestsTo,
  uint32,
} from '../../../../support/raw-http2.ts';

const HOST = 'raw.localhost';

let edge: TestEdge;
let endpoint: DirectEndpoint;
/** Requests as the upstream got them, with their bodies. */
let reached: string[] = [];
/** Header names of the last one. */
let names: string[] = [];
const open: RawHttp2[] = [];

beforeAll(async () => {
  edge = await TestEdge.start();
  endpoint = await edge.serve(
    HOST,
    (req, res) => {
      const chunks: Buffer[] = [];
      req.on('data', (chunk: Buffer) => chunks.push(chunk));
      req.on('end', () => {
        reached.push(`${req.method} ${req.url} ${Buffer.concat(chunks)}`);
        names = req.rawHeaders.filter((_, at) => at % 2 === 0 && req.rawHeaders[at] !== 'Connection');
        res.end('ok');
      });
      req.on('error', () => {});
    },
    { protocol: 'https' },
  );
});
afterEach(() => {
  for (const raw of open.splice(0)) raw.socket.destroy();
  reached = [];
});
afterAll(() => edge.close());

async function connect(beginning?: string): Promise<RawHttp2> {
  const raw = await RawHttp2.open(edge, HOST, beginning);
  open.push(raw);
  return raw;
}

const ALL = Flag.endStream | Flag.endHeaders;
const { fields: PSEUDO, without, set, get, post } = requestsTo(HOST);

describe('a connection ends with', () => {
  it.each([
    ['another preface', 'PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n'],
    ['a request of HTTP/1.1', `GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`],
  ])('%s', async (_what, beginning) => {
    await (await connect(beginning)).end();
    expect(reached).toEqual([]);
  });

  it('a body that exceeds its flow-control window', async () => {
    const opening = endpoint.open;
    endpoint.open = () => {
      throw new StreamsExhausted();
    };
    const raw = await connect();
    raw.send(post(1), ...Array.from({ length: 9 }, () => frame(Frame.data, 0, 1, Buffer.alloc(16_384))));
    const outcome = await Promise.race([raw.outcome(1), raw.end()]);
    endpoint.open = opening;
    // nghttp2 ends the stream or, since 1.70, the connection.
    expect([undefined, null, { reset: Code.flowControl }]).toContainEqual(outcome);
    expect(reached).toEqual([]);
  });
});

describe('only the request is rejected that has', () => {
  it.each<[string, Fields]>([
    ['a name in upper case', [...PSEUDO, ['X-A', '1']]],
    ['a pseudo-header behind others', [...without(':path'), ['x-a', '1'], [':path', '/']]],
    ['an unknown pseudo-header', [...PSEUDO, [':x', '1']]],
    ['a pseudo-header of responses', [...PSEUDO, [':status', '200']]],
    ['no method', without(':method')],
    ['no scheme', without(':scheme')],
    ['no path', without(':path')],
    ['no host at all', without(':authority')],
    ['an empty path', set(':path', '')],
    ['two paths', [...PSEUDO, [':path', '/']]],
    ['two methods', [...PSEUDO, [':method', 'GET']]],
    ['two schemes', [...PSEUDO, [':scheme', 'https']]],
    ['a request in the path', set(':path', '/ HTTP/1.1\r\nHost: raw.localhost\r\n\r\nGET /smuggled')],
    ['a space in the path', set(':path', '/a b')],
    ['an invalid path', set(':path', 'smuggled')],
    ['a request in the method', set(':method', 'GET /smuggled HTTP/1.1\r\nHost: raw.localhost\r\n\r\nGET')],
    ['a header in the host', set(':authority', 'raw.localhost\r\nx-a: 1')],
    ['a protocol, unasked', [...set(':method', 'CONNECT'), [':protocol', 'websocket']]],
    ['connection', [...PSEUDO, ['connection', 'close']]],
    ['keep-alive', [...PSEUDO, ['keep-alive', 'timeout=5']]],
    ['proxy-connection', [...PSEUDO, ['proxy-connection', 'close']]],
    ['transfer-encoding', [...PSEUDO, ['transfer-encoding', 'chunked']]],
    ['upgrade', [...PSEUDO, ['upgrade', 'websocket']]],
    ['te other than trailers', [...PSEUDO, ['te', 'gzip']]],
    ['two lengths', [...PSEUDO, ['content-length', '0'], ['content-length', '0']]],
    ['an invalid content-length', [...PSEUDO, ['content-length', '+0']]],
    ['a length and no body', [...PSEUDO, ['content-length', '3']]],
  ])('%s', async (_what, fields) => {
    const raw = await connect();
    raw.send(get(1, fields), get(3));
    expect(await raw.outcome(1)).toEqual({ reset: Code.protocol });
    expect(await raw.outcome(3)).toEqual({ answered: true });
    expect(reached).toEqual(['GET / ']);
  });

  it.each<[string, number[], Buffer[]]>([
    [
      'less of a body than it says',
      [Code.protocol],
      [post(1, [['content-length', '5']]), frame(Frame.data, Flag.endStream, 1, 'abc')],
    ],
    [
      'a pseudo-header in its trailers',
      [Code.protocol],
      [post(1), frame(Frame.headers, ALL, 1, block([[':path', '/smuggled']]))],
    ],
    [
      'trailers that do not end it',
      [Code.protocol],
      [post(1), frame(Frame.headers, Flag.endHeaders, 1, block([['x-a', '1']]))],
    ],
    [
      'more headers than anybody sends',
      [Code.calm],
      [get(1, [...PSEUDO, ...Array.from({ length: 500 }, (_, at) => [`x-${at}`, '1'] as const)])],
    ],
  ])('%s', async (_what, codes, frames) => {
    const raw = await connect();
    raw.send(...frames, get(3));
    expect(codes.map((reset) => ({ reset }))).toContainEqual(await raw.outcome(1));
    expect(await raw.outcome(3)).toEqual({ answered: true });
    expect(reached).toEqual(['GET / ']);
  });

  // nghttp2 1.61 (Node.js 20) resets the stream, 1.70 (Node.js 24 and 26) ends the connection. RFC 9113, 5.4.1 allows both.
  it('more of a body than it says, or its connection ends', async () => {
    const raw = await connect();
    const body = frame(Frame.data, Flag.endStream, 1, 'abcGET /smuggled HTTP/1.1\r\n\r\n');
    raw.send(post(1, [['content-length', '3']]), body, get(3));
    const outcome = await raw.outcome(1);
    expect([{ reset: Code.protocol }, null]).toContainEqual(outcome);
    expect(await raw.outcome(3)).toEqual(outcome === null ? null : { answered: true });
    expect(reached).toEqual(outcome === null ? [] : ['GET / ']);
  });

  it.each<[string, Record<string, string>]>([
    ['another host than its authority', { host: 'other.localhost' }],
    ['an asterisk for a path', { ':method': 'OPTIONS', ':path': '*' }],
  ])('%s, with a status', async (_what, headers) => {
    const session = await openHttp2(edge, HOST);
    const answer = await askHttp2(session, { ':authority': HOST, ...headers });
    session.destroy();
    expect([answer.headers[':status'], reached]).toEqual([400, []]);
  });
});

describe('a request loses only the header with', () => {
  it.each<[string, Fields]>([
    ['an empty name', [...PSEUDO, ['', '1']]],
    ['a space in a name', [...PSEUDO, ['x a', '1']]],
    ['a colon in a name', [...PSEUDO, ['x:a', '1']]],
    ['a line feed in a name', [...PSEUDO, ['x\nhost', '1']]],
    ['a line feed in a value', [...PSEUDO, ['x-a', '1\nx-b: 2']]],
    ['a line end in a value', [...PSEUDO, ['x-a', '1\r\nx-b: 2']]],
    ['a request in a value', [...PSEUDO, ['x-a', '1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: raw.localhost']]],
    ['a null byte in a value', [...PSEUDO, ['x-a', '1\0']]],
    ['space around a value', [...PSEUDO, ['x-a', ' 1']]],
  ])('%s', async (_what, fields) => {
    const raw = await connect();
    raw.send(get(1, [...fields, ['x-last', '1']]));
    expect(await raw.outcome(1)).toEqual({ answered: true });
    expect(reached).toEqual(['GET / ']);
    expect(names).toEqual(['Host', 'X-Last', 'X-Forwarded-For', 'X-Forwarded-Proto', 'X-Forwarded-Host']);
  });
});

it('serves a request whose headers are fragmented, padded and prioritised', async () => {
  const raw = await connect();
  const fields = block(PSEUDO);
  const priority = Buffer.concat([uint32(0), Buffer.from([15])]);
  const first = Buffer.concat([Buffer.from([2]), priority, fields.subarray(0, 10), Buffer.alloc(2)]);
  raw.send(
    frame(Frame.headers, Flag.endStream | Flag.padded | Flag.priority, 1, first),
    frame(Frame.continuation, 0, 1, fields.subarray(10, 20)),
    frame(Frame.continuation, Flag.endHeaders, 1, fields.subarray(20)),
    frame(0xbb, 0, 0, 'a frame of unknown type'),
  );
  expect(await raw.outcome(1)).toEqual({ answered: true });
  expect(reached).toEqual(['GET / ']);
});

it('still serves other clients', async () => {
  const session = await openHttp2(edge, HOST);
  expect((await askHttp2(session, {})).body).toBe('ok');
  session.destroy();
});
