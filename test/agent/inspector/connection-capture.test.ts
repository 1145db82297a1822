import { deflateRawSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { CaptureStore } from '../../../src/agent/inspector/capture-store.ts';
import { CaptureTime } from '../../../src/agent/inspector/capture-time.ts';
import type { CapturedExchange } from '../../../src/agent/inspector/captured-exchange.ts';
import { setUpCapture } from './captured.ts';

const brief = ({ state, request, response, error }: CapturedExchange) => [
  `${request.line.method} ${request.line.target}`,
  request.body?.bytes.toString() ?? null,
  response?.line.status ?? null,
  response?.body?.bytes.toString() ?? null,
  error ?? state,
];

const GET = 'GET /a?b=1 HTTP/1.1\r\nHost: cam.example\r\n\r\n';
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello';

/** What passes, and what is captured of it. */
const MATRIX: [string, { client: string; upstream: string; ended?: boolean }, unknown[][]][] = [
  ['a body by its length', { client: GET, upstream: OK }, [['GET /a?b=1', null, 200, 'hello', 'complete']]],
  [
    'chunked bodies with extensions and trailers',
    {
      client:
        'POST /c HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n',
      upstream:
        'HTTP/1.1 201 Created\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Two: 2\r\n\r\n',
    },
    [['POST /c', 'abc0123456789', 201, 'ok', 'complete']],
  ],
  [
    'pipelined requests',
    {
      client: `${GET}POST /p HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi${GET}`,
      upstream: `${OK}HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n${OK}`,
    },
    [
      ['GET /a?b=1', null, 200, 'hello', 'complete'],
      ['POST /p', 'hi', 204, null, 'complete'],
      ['GET /a?b=1', null, 200, 'hello', 'complete'],
    ],
  ],
  [
    'HEAD, 304 and an empty body, which have none',
    {
      client: `HEAD /h HTTP/1.1\r\n\r\n${GET}${GET}`,
      upstream:
        'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n',
    },
    [
      ['HEAD /h', null, 200, null, 'complete'],
      ['GET /a?b=1', null, 304, null, 'complete'],
      ['GET /a?b=1', null, 200, null, 'complete'],
    ],
  ],
  [
    'interim responses before the final one',
    {
      client: 'PUT /u HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc',
      upstream: `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${OK}`,
    },
    [['PUT /u', 'abc', 200, 'hello', 'complete']],
  ],
  [
    'a body until the end of the connection',
    { client: GET, upstream: 'HTTP/1.0 200 OK\r\n\r\nall of it', ended: true },
    [['GET /a?b=1', null, 200, 'all of it', 'complete']],
  ],
  [
    'a body that ends early',
    { client: GET, upstream: 'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhal', ended: true },
    [['GET /a?b=1', null, 200, 'hal', 'the upstream closed the connection before the response was complete']],
  ],
  [
    'line ends without CR, and empty lines before a request',
    { client: '\r\nGET /lf HTTP/1.1\nHost: a\n\n', upstream: 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok' },
    [['GET /lf', null, 200, 'ok', 'complete']],
  ],
  [
    'a response before the request has ended',
    {
      client: 'POST /big HTTP/1.1\r\nContent-Length: 10\r\n\r\n123',
      upstream: 'HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n',
    },
    [['POST /big', '123', 413, null, 'complete']],
  ],
  [
    'no response',
    { client: GET, upstream: '', ended: true },
    [['GET /a?b=1', null, null, null, 'the upstream closed the connection before there was a response']],
  ],
];

it.each([
  ['events', 'Content-Type: text/event-stream', 'complete'],
  ['images of a camera', 'content-type: multipart/x-mixed-replace; boundary=b', 'complete'],
  ['a download', 'Content-Type: video/mp4', 'the client closed the connection before the response was complete'],
])('the end by its client of %s', (_, header, outcome) => {
  const { client, upstream, capture, exchanges } = setUpCapture();
  client(GET);
  upstream(`HTTP/1.1 200 OK\r\n${header}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n`);
  capture.closed(false, 'client');
  expect(exchanges().map(({ state, error }) => error ?? state)).toEqual([outcome]);
});

const ADVERSARIAL: [string, { client: string; upstream: string }, string][] = [
  ['HTTP/2', { client: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', upstream: '' }, 'HTTP/2 is not inspected'],
  ['no HTTP at all', { client: 'SSH-2.0-x\r\n\r\n', upstream: '' }, 'not a request of HTTP/1.1'],
  ['bytes of TLS', { client: '\x16\x03\x01\x02\x00\n\r\n\x01\xfc', upstream: '' }, 'not a request of HTTP/1.1'],
  [
    'two lengths',
    { client: `POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n`, upstream: '' },
    'several lengths',
  ],
  [
    'a negative length',
    { client: 'POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n', upstream: '' },
    'invalid Content-Length',
  ],
  [
    'an unknown coding',
    { client: 'POST / HTTP/1.1\r\nTransfer-Encoding: chunked, x\r\n\r\n', upstream: '' },
    'transfer encoding chunked, x',
  ],
  [
    'a chunk without a size',
    { client: GET, upstream: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nab' },
    'invalid chunk size',
  ],
  [
    'an endless chunk size',
    { client: GET, upstream: `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${'f'.repeat(40)}` },
    'invalid chunk size',
  ],
  [
    'an endless chunk extension',
    { client: GET, upstream: `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;${'a'.repeat(9_000)}` },
    'invalid chunk size',
  ],
  [
    'data after a chunk',
    { client: GET, upstream: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX' },
    'invalid chunk',
  ],
  [
    'endless trailers',
    { client: GET, upstream: `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n${'A: b\r\n'.repeat(4_000)}` },
    'trailers are too large',
  ],
  [
    'an endless head',
    { client: `GET / HTTP/1.1\r\n${'A: b\r\n'.repeat(20_000)}`, upstream: '' },
    'its header is longer than 64 KiB',
  ],
  [
    'letters after a chunk size',
    { client: GET, upstream: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1x\r\na\r\n0\r\n\r\n' },
    'invalid chunk size',
  ],
];

it.each([
  ['no status', GET, 'HTTP/1.1 OK\r\n\r\n', 'no status of three digits'],
  ['a second one that is none', `${GET}${GET}`, `${OK}junk\r\n\r\n`, 'no status of three digits'],
  [
    'two lengths',
    GET,
    'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na',
    'content-lengths that differ',
  ],
  ['a switch of protocols', GET, 'HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n', 'which the request has not asked for'],
  ['no head', GET, 'hi', 'it has no status line'],
])('a response with %s is named as invalid, whoever closes the connection', (_, client, upstream, problem) => {
  for (const by of ['client', 'upstream'] as const) {
    const connection = setUpCapture();
    connection.client(client);
    connection.upstream(upstream);
    connection.capture.closed(by === 'upstream', by);
    expect(connection.exchanges().at(-1)).toMatchObject({
      state: 'failed',
      error: expect.stringMatching(`^the upstream sent an invalid HTTP response: .*${problem}`),
    });
  }
});

describe.each(MATRIX)('a connection with %s', (_name, { client, upstream, ended }, expected) => {
  it.each([1, 3, 1_000_000])('is captured when it arrives in pieces of %i bytes', (size) => {
    const connection = setUpCapture();
    connection.client(...pieces(client, size));
    connection.upstream(...pieces(upstream, size));
    if (ended) connection.capture.closed(true, 'upstream');
    expect(connection.exchanges().map(brief)).toEqual(expected);
  });
});

describe.each(ADVERSARIAL)('a connection with %s', (_name, { client, upstream }, reason) => {
  it.each([7, 1_000_000])('is marked as not inspected when it arrives in pieces of %i bytes', (size) => {
    const connection = setUpCapture();
    connection.client(...pieces(client, size));
    connection.upstream(...pieces(upstream, size));
    expect(connection.capture.isOver).toBe(true);
    const [exchange] = connection.exchanges().slice(-1);
    expect(exchange).toMatchObject({ state: 'failed', error: expect.stringContaining(`not inspected: ${reason}`) });
    // What follows passes unseen.
    const before = connection.exchanges().length;
    connection.client(GET);
    expect(connection.exchanges().length).toBe(before);
  });
});

it('random bytes in either direction never throw', () => {
  let seed = 7;
  const random = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed / 2_147_483_648;
  };
  const starts = [
    GET,
    'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n',
    'GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n',
  ];
  const answers = [
    OK,
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n',
  ];
  for (let round = 0; round < 300; round++) {
    const { client, upstream, capture, store } = setUpCapture();
    const noise = () => Array.from({ length: 60 }, () => String.fromCharCode(Math.floor(random() * 256))).join('');
    client(starts[round % 3] ?? '', noise(), noise());
    upstream(answers[Math.floor(random() * 3)] ?? '', noise(), noise());
    capture.closed(random() < 0.5, random() < 0.5 ? 'client' : 'upstream');
    expect([...store.list('tunnel')].every(({ state }) => state !== 'open')).toBe(true);
    store.clear('tunnel');
    expect(store.held).toBe(0);
  }
});

it('an upstream that cannot be connected is shown with the request', () => {
  const { client, capture, exchanges } = setUpCapture();
  client(GET);
  capture.failed('connect ECONNREFUSED 127.0.0.1:1');
  expect(exchanges().map(brief)).toEqual([
    ['GET /a?b=1', null, null, null, 'upstream unreachable: connect ECONNREFUSED 127.0.0.1:1'],
  ]);
  expect(exchanges()[0]?.state).toBe('failed');
});

it('a body is captured up to 256 KiB, and counted whole', () => {
  const { client, upstream, exchanges } = setUpCapture();
  client(GET);
  upstream('HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n');
  for (let part = 0; part < 10; part++) upstream('x'.repeat(100_000));
  const [exchange] = exchanges();
  expect(exchange?.state).toBe('complete');
  expect(exchange?.response).toMatchObject({ bodySize: 1_000_000, isTruncated: true });
  expect(exchange?.response?.body?.length).toBe(262_144);
});

describe('server-sent events', () => {
  const head = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n';
  const stream = ': hi\n\ndata: one\n\nevent: tick\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata: unfinished\n';

  it.each([1, 5, 10_000])('are captured as they come in pieces of %i bytes', (size) => {
    const { client, upstream, exchanges } = setUpCapture();
    client(GET);
    upstream(`${head}\r\n`, ...pieces(stream, size));
    const [exchange] = exchanges();
    expect(exchange).toMatchObject({ kind: 'events', state: 'open', messageCount: 2 });
    expect(exchange?.messages?.map(({ number, event, data, from }) => [number, event, data.toString(), from])).toEqual([
      [1, 'message', 'one', 'upstream'],
      [2, 'tick', '{"a":\n1}', 'upstream'],
    ]);
  });

  it('that are compressed have no events, only bytes', () => {
    const { client, upstream, exchanges } = setUpCapture();
    client(GET);
    upstream(`${head}Content-Encoding: gzip\r\n\r\n`, stream);
    expect(exchanges()[0]).toMatchObject({ kind: 'events', messages: null });
    expect(exchanges()[0]?.response?.bodySize).toBe(stream.length);
  });
});

describe('a WebSocket', () => {
  const upgrade = (extensions = '') =>
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n${extensions}\r\n`;
  const setUp = (extensions?: string, time?: CaptureTime) => {
    const connection = setUpCapture(undefined, time);
    connection.client('GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
    connection.upstream(upgrade(extensions));
    const messages = () => connection.exchanges()[0]?.messages ?? [];
    return { ...connection, messages, texts: () => messages().map(({ from, data }) => [from, data.toString()]) };
  };

  it.each([1, 4, 10_000])('shows messages of both sides, masked and fragmented, in pieces of %i bytes', (size) => {
    const { client, upstream, texts, exchanges } = setUp();
    const sent = `${frame(0x01, 'hel', 'key!')}${frame(0x89, 'ping', 'mask')}${frame(0x00, 'l', 'abcd')}${frame(0x80, 'o', '1234')}`;
    client(...pieces(sent, size));
    upstream(...pieces(`${frame(0x81, 'x'.repeat(300))}${frame(0x82, '\x00\x01')}${frame(0x88, '\x03\xe8bye')}`, size));
    expect(texts()).toEqual([
      ['client', 'hello'],
      ['upstream', 'x'.repeat(300)],
      ['upstream', '\x00\x01'],
      ['upstream', Buffer.from('\x03\xe8bye', 'latin1').toString()],
    ]);
    expect(exchanges()[0]).toMatchObject({ kind: 'websocket', state: 'open', messageCount: 4 });
  });

  it('shows the beginning of a large message', () => {
    const { upstream, messages } = setUp();
    upstream(frame(0x82, 'y'.repeat(200_000)), frame(0x81, 'next'));
    const [large, next] = messages();
    expect(large).toMatchObject({ size: 200_000, truncated: true });
    expect(large?.data.length).toBe(16_384);
    expect(next?.data.toString()).toBe('next');
  });

  it('shows compressed messages that refer to earlier ones', () => {
    const { upstream, texts } = setUp('Sec-WebSocket-Extensions: permessage-deflate\r\n');
    const text = '{"temperature": 21.5, "unit": "celsius"}';
    const first = deflated(text);
    const second = deflated(text, Buffer.from(text));
    expect(second.length).toBeLessThan(first.length);
    upstream(frame(0xc1, first), frame(0xc1, second), frame(0x81, 'plain'));
    expect(texts()).toEqual([
      ['upstream', text],
      ['upstream', text],
      ['upstream', 'plain'],
    ]);
  });

  it('says so when a compressed message is a bomb', () => {
    const { upstream, messages } = setUp('Sec-WebSocket-Extensions: permessage-deflate\r\n');
    upstream(frame(0xc1, deflated('0'.repeat(10_000_000))), frame(0xc1, deflated('a')));
    expect(messages().map(({ error, data }) => [error, data.length < 20_000])).toEqual([
      ['cannot be decompressed', true],
      ['cannot be decompressed', true],
    ]);
  });

  it('that takes more processor time than there is has its messages as they were sent, and at last none', () => {
    let now = 0;
    // Each step takes a millisecond.
    const time = new CaptureTime(() => now++);
    const extensions = 'Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n';
    const { upstream, messages, exchanges } = setUp(extensions, time);
    const sent = deflated('hello');
    for (let count = 0; count < 300; count++) upstream(frame(0xc1, sent));
    const shown = messages().map(({ data, error, truncated }) => [data.toString('latin1'), error, truncated]);
    const decoded = shown.filter(([, error]) => error === null);
    expect(decoded).toEqual(decoded.map(() => ['hello', null, false]));
    expect(decoded.length).toBeGreaterThan(5);
    const undecoded = shown.slice(decoded.length);
    const reason = 'not decompressed: capturing takes too much processor time';
    expect(undecoded).toEqual(undecoded.map(() => [sent, reason, false]));
    expect(undecoded.length).toBeGreaterThan(5);
    expect(shown.length).toBeLessThan(300);
    expect(exchanges()[0]).toMatchObject({ state: 'failed', error: 'not inspected: it takes too much processor time' });
    // Later, there is time again.
    now += 10_000;
    const later = setUp(extensions, time);
    later.upstream(frame(0xc1, sent));
    expect(later.texts()).toEqual([['upstream', 'hello']]);
  });

  it.each([
    ['a reserved bit', '\xb1\x00'],
    ['a continuation of nothing', '\x80\x01a'],
    ['a long control frame', '\x89\x7e\x01\x00'],
    ['an unknown opcode', '\x83\x00'],
    ['an impossible length', `\x82\x7f${'\xff'.repeat(8)}`],
  ])('with %s is marked as not inspected', (_name, bytes) => {
    const { upstream, exchanges } = setUp();
    upstream(bytes);
    expect(exchanges()[0]).toMatchObject({ state: 'failed', error: 'not inspected: not a WebSocket' });
  });

  it('keeps the latest thousand messages', () => {
    const { upstream, messages, exchanges } = setUp();
    for (let count = 1; count <= 1_005; count++) upstream(frame(0x81, `m${count}`));
    expect(messages().length).toBe(1_000);
    expect(messages()[0]).toMatchObject({ number: 6 });
    expect(exchanges()[0]?.messageCount).toBe(1_005);
  });
});

it('an upgrade to something else is shown with its bytes alone', () => {
  const { client, upstream, capture, exchanges } = setUpCapture();
  client('GET / HTTP/1.1\r\nUpgrade: vnc\r\nConnection: Upgrade\r\n\r\n');
  upstream('HTTP/1.1 101 Switching Protocols\r\nUpgrade: vnc\r\n\r\nRFB 003');
  client('GET / not a request');
  capture.closed(true, 'upstream');
  const [exchange] = exchanges();
  expect(exchange).toMatchObject({ kind: 'upgrade', state: 'complete', messages: null });
  expect([exchange?.request.bodySize, exchange?.response?.bodySize]).toEqual([19, 7]);
});

describe('memory', () => {
  it('stays below the limit: the oldest requests are forgotten, also those that are open', () => {
    const limit = 1_000_000;
    const store = new CaptureStore(limit);
    const open = setUpCapture(store);
    open.client('GET /open HTTP/1.1\r\n\r\n');
    open.upstream('HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n', 'a'.repeat(1_000));
    for (let count = 0; count < 2_000; count++) {
      const { client, upstream } = setUpCapture(store);
      client(`GET /${count} HTTP/1.1\r\n\r\n`);
      upstream(`HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n${'b'.repeat(5_000)}`);
      open.upstream('a'.repeat(1_000));
      expect(store.held).toBeLessThanOrEqual(limit);
    }
    const paths = [...store.list('tunnel')].map(({ request }) => request.line.target);
    expect(paths.length).toBeGreaterThan(100);
    expect(paths.slice(0, 2)).toEqual(['/1999', '/1998']);
    expect(paths).not.toContain('/open');
    store.clear('tunnel');
    expect(store.held).toBe(0);
  });

  it('of a complete request is little more than its bytes, and what somebody reads stays as it was', () => {
    const store = new CaptureStore(1_000_000);
    const { client, upstream } = setUpCapture(store);
    const exchange = (path: string, sent: string, answer: string) => {
      client(`POST ${path} HTTP/1.1\r\nContent-Length: ${sent.length}\r\n\r\n`, sent);
      upstream(`HTTP/1.1 201 Created\r\nContent-Length: ${answer.length}\r\n\r\n`, answer);
    };
    exchange('/first', '\xe9\0a', 'b'.repeat(2_000));
    const first = store.find('tunnel', 1);
    for (let count = 0; count < 20_000; count++) exchange(`/${count}`, '', 'small');
    expect(store.find('tunnel', 1)).toBeNull();
    expect(first?.request.body?.bytes.toString('latin1')).toBe('\xe9\0a');
    expect(first?.response?.body?.bytes.toString()).toBe('b'.repeat(2_000));
    expect(first).toMatchObject({
      ...{ state: 'complete', kind: 'http', tunnelId: 'tunnel', isHeld: true, replayOf: null },
      request: { line: { method: 'POST', target: '/first', httpVersion: '1.1' }, bodySize: 3, isTruncated: false },
      response: { line: { status: 201, statusText: 'Created' }, bodySize: 2_000 },
    });
    expect(first?.endedAt).toBeGreaterThanOrEqual(first?.request.endedAt ?? Number.NaN);
    expect(store.held).toBeLessThanOrEqual(1_000_000);
    expect(store.countOf('tunnel')).toBeGreaterThan(3_000);
    // Also where the memory of forgotten ones was used again.
    const held = [...store.list('tunnel')].map(({ request, response }) => [
      request.line.target,
      response?.body?.bytes.toString(),
    ]);
    expect(held).toEqual(held.map((_, at) => [`/${19_999 - at}`, 'small']));
  });

  it('that unfinished heads and messages take is limited, and given back', () => {
    const store = new CaptureStore(1_000_000);
    const connections = Array.from({ length: 50 }, () => setUpCapture(store));
    for (const { client } of connections) client('GET / HTTP/1.1\r\n', `Cookie: ${'c'.repeat(20_000)}`);
    expect(store.held).toBeLessThanOrEqual(1_000_000);
    const refused = connections.filter(({ capture }) => capture.isOver);
    expect(refused.length).toBeGreaterThan(30);
    for (const { capture } of connections) capture.closed(false, 'client');
    store.clear('tunnel');
    expect(store.held).toBe(0);
  });
});

function pieces(text: string, size: number): string[] {
  return Array.from({ length: Math.ceil(text.length / size) }, (_, at) => text.slice(at * size, (at + 1) * size));
}

/** A frame of a WebSocket, one byte a character. */
function frame(first: number, payload: string, mask?: string): string {
  const masked = mask
    ? [...payload].map((each, at) => String.fromCharCode(each.charCodeAt(0) ^ mask.charCodeAt(at % 4))).join('')
    : payload;
  const bit = mask ? 0x80 : 0;
  const length = Buffer.alloc(payload.length < 126 ? 1 : payload.length < 65_536 ? 3 : 9);
  if (payload.length < 126) length[0] = bit | payload.length;
  else if (payload.length < 65_536) {
    length[0] = bit | 126;
    length.writeUInt16BE(payload.length, 1);
  } else {
    length[0] = bit | 127;
    length.writeBigUInt64BE(BigInt(payload.length), 1);
  }
  return `${String.fromCharCode(first)}${length.toString('latin1')}${mask ?? ''}${masked}`;
}

function deflated(text: string, dictionary?: Buffer): string {
  const bytes = deflateRawSync(text, { ...(dictionary && { dictionary }), finishFlush: 2 });
  return bytes.subarray(0, bytes.length - 4).toString('latin1');
}
