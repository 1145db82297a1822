import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { TestEdge } from '../../../../support/edge.ts';
import {
  block,
  Code,
  Flag,
  Frame,
  frame,
  PREFACE,
  RawHttp2,
  type ReceivedFrame,
  requestsTo,
  setting,
  uint32,
} from '../../../../support/raw-http2.ts';

/*
 * The cases of h2spec (github.com/summerwind/h2spec, sections of RFC 7540 and RFC 7541), sent with raw frames. The sections
 * are h2spec's: RFC 9113 has the same rules, except for priorities. Its cases of 8.1 are in http2-frames.test.ts.
 */

const HOST = 'h2spec.localhost';
const BODY = 'hello';

let edge: TestEdge;
const open: RawHttp2[] = [];
/** Answers that the upstream holds back. */
const held: (() => void)[] = [];
/** The targets of the requests that have reached the upstream. */
let paths: (string | undefined)[] = [];

beforeAll(async () => {
  edge = await TestEdge.start();
  await edge.serve(
    HOST,
    (req, res) => {
      req.on('error', () => {}).resume();
      paths.push(req.url);
      if (req.url === '/held') held.push(() => res.end(BODY));
      else req.on('end', () => res.end(BODY));
    },
    { protocol: 'https' },
  );
});
afterEach(() => {
  for (const raw of open.splice(0)) raw.socket.destroy();
  for (const answer of held.splice(0)) answer();
  paths = [];
});
afterAll(() => edge.close());

async function connect(beginning?: string): Promise<RawHttp2> {
  const raw = await RawHttp2.open(edge, HOST, beginning);
  open.push(raw);
  return raw;
}

const ALL = Flag.endStream | Flag.endHeaders;
const { fields: PSEUDO, set, get, post } = requestsTo(HOST);
const FIELDS = block(PSEUDO);
const ignored = (stream: number) => get(stream, set(':path', '/ignored'));
const hold = (stream: number) => get(stream, set(':path', '/held'));
const data = (stream: number, payload: Buffer | string = 'test', flags: number = Flag.endStream) =>
  frame(Frame.data, flags, stream, payload);
const continuation = (stream: number, payload: Buffer | string = FIELDS, flags: number = Flag.endHeaders) =>
  frame(Frame.continuation, flags, stream, payload);
const reset = (stream: number, code: number = Code.cancel) => frame(Frame.reset, 0, stream, uint32(code));
const priority = (stream: number, on: number) =>
  frame(Frame.priority, 0, stream, Buffer.concat([uint32(on), Buffer.from([255])]));
const window = (stream: number, increment: number) => frame(Frame.windowUpdate, 0, stream, uint32(increment));
const settings = (...entries: Buffer[]) => frame(Frame.settings, 0, 0, Buffer.concat(entries));
const ping = (payload = 'h2spec--', flags = 0, stream = 0) => frame(Frame.ping, flags, stream, payload);
const goaway = (code: number, stream = 0) => frame(Frame.goaway, 0, stream, Buffer.concat([uint32(0), uint32(code)]));
/** A request whose header block has further bytes. */
const blockAnd = (bytes: string) => frame(Frame.headers, ALL, 1, Buffer.concat([FIELDS, Buffer.from(bytes, 'latin1')]));
/** A request whose headers go on in CONTINUATION frames. */
const unfinished = (stream: number, flags: number = Flag.endStream) => frame(Frame.headers, flags, stream, FIELDS);
const INITIAL_WINDOW = 4;

/** What becomes of the connection: `closed`, `GOAWAY` or `RESET` with the code, or `open`. */
async function verdict(raw: RawHttp2): Promise<string> {
  // Answers to PING overtake other frames: what the first one has overtaken comes before the second one.
  for (const round of ['verdict1', 'verdict2']) {
    raw.send(ping(round));
    const found = await raw.next(({ type, payload }) => isError(type) || payload.toString() === round);
    if (found === null) return 'closed';
    if (found.type === Frame.reset) return `RESET ${found.payload.readUInt32BE()}`;
    if (found.type !== Frame.goaway) continue;
    const code = found.payload.readUInt32BE(4);
    // Node.js has replaced the code, and closes the connection.
    if (code === Code.internal) await raw.closed();
    return code === Code.internal ? 'closed' : `GOAWAY ${code}`;
  }
  return 'open';
}

const isError = (type: number) => type === Frame.goaway || type === Frame.reset;

/** As h2spec judges: a GOAWAY with the code, or the end of the connection. */
const connectionError = (...codes: number[]) => ['closed', ...codes.map((code) => `GOAWAY ${code}`)];
const streamError = (...codes: number[]) => [...connectionError(...codes), ...codes.map((code) => `RESET ${code}`)];
const { protocol, streamClosed, flowControl, frameSize, compression, refused } = Code;

type Case = [section: string, sends: string, frames: Buffer[] | ((raw: RawHttp2) => Promise<void>), verdicts: string[]];

/** Waits until a request has been answered completely. */
const answered = async (raw: RawHttp2, stream = 1) => {
  const isLast = ({ stream: on, flags, type }: ReceivedFrame) =>
    on === stream && (flags & Flag.endStream) !== 0 && (type === Frame.data || type === Frame.headers);
  expect(await raw.next(isLast)).not.toBeNull();
};
const afterAnswer =
  (...frames: Buffer[]) =>
  async (raw: RawHttp2) => {
    raw.send(get(1));
    await answered(raw);
    raw.send(...frames);
  };

const ERRORS: Case[] = [
  [
    '4.2',
    'a DATA frame that exceeds SETTINGS_MAX_FRAME_SIZE',
    [post(1), data(1, Buffer.alloc(16_385))],
    streamError(frameSize),
  ],
  [
    '4.2',
    'a HEADERS frame that exceeds SETTINGS_MAX_FRAME_SIZE',
    [get(1, [...PSEUDO, ['x', 'a'.repeat(16_385)]])],
    connectionError(frameSize),
  ],
  [
    '4.3',
    'an invalid header block fragment',
    [frame(Frame.headers, ALL, 1, '\x00\x01\x3f')],
    connectionError(compression),
  ],
  [
    '4.3',
    'PRIORITY between header blocks',
    [unfinished(1), priority(1, 0), continuation(1, '')],
    connectionError(protocol),
  ],
  ['4.3', 'HEADERS of another stream between header blocks', [unfinished(1), get(3)], connectionError(protocol)],
  ['5.1', 'idle: DATA', [data(1)], streamError(protocol, streamClosed)],
  ['5.1', 'idle: RST_STREAM', [reset(1)], connectionError(protocol)],
  ['5.1', 'idle: WINDOW_UPDATE', [window(1, 100)], connectionError(protocol)],
  ['5.1', 'idle: CONTINUATION', [continuation(1)], connectionError(protocol)],
  ['5.1', 'half closed (remote): DATA', [hold(1), data(1)], streamError(streamClosed)],
  ['5.1', 'half closed (remote): HEADERS', [hold(1), hold(1)], streamError(streamClosed)],
  ['5.1', 'half closed (remote): CONTINUATION', [hold(1), continuation(1)], streamError(streamClosed, protocol)],
  [
    '5.1',
    'closed: CONTINUATION after RST_STREAM',
    [post(1), reset(1), continuation(1)],
    streamError(streamClosed, protocol),
  ],
  ['5.1', 'closed: CONTINUATION', afterAnswer(continuation(1)), connectionError(streamClosed, protocol)],
  ['5.1.1', 'an even stream identifier', [get(2)], connectionError(protocol)],
  [
    '5.1.2',
    'more HEADERS than SETTINGS_MAX_CONCURRENT_STREAMS allows',
    Array.from({ length: 101 }, (_, at) => hold(2 * at + 1)),
    streamError(protocol, refused),
  ],
  [
    '5.3.1',
    'HEADERS that depend on themselves',
    [frame(Frame.headers, ALL | Flag.priority, 1, Buffer.concat([uint32(1), Buffer.from([255]), FIELDS]))],
    streamError(protocol),
  ],
  ['5.4.1', 'an invalid PING frame', [frame(Frame.ping, 0, 1, 'invalid!')], connectionError(protocol)],
  [
    '5.5',
    'an extension frame between header blocks',
    [unfinished(1), frame(0xff, 0, 0), continuation(1, '')],
    connectionError(protocol),
  ],
  ['6.1', 'DATA on stream 0', [data(0)], connectionError(protocol)],
  ['6.1', 'DATA on a stream that is not open', [hold(1), data(1)], streamError(streamClosed)],
  [
    '6.1',
    'DATA with an invalid pad length',
    [post(1), data(1, '\x05test', Flag.endStream | Flag.padded)],
    connectionError(protocol),
  ],
  ['6.2', 'HEADERS without END_HEADERS, and PRIORITY', [unfinished(1, 0), priority(1, 0)], connectionError(protocol)],
  ['6.2', 'HEADERS of another stream while sending HEADERS', [unfinished(1, 0), get(3)], connectionError(protocol)],
  ['6.2', 'HEADERS on stream 0', [get(0)], connectionError(protocol)],
  [
    '6.2',
    'HEADERS with an invalid pad length',
    [frame(Frame.headers, ALL | Flag.padded, 1, Buffer.concat([Buffer.from([255]), FIELDS]))],
    connectionError(protocol),
  ],
  [
    '6.3',
    'PRIORITY with a length other than 5',
    [post(1), frame(Frame.priority, 0, 1, '\x80\x00\x00\x01')],
    streamError(frameSize),
  ],
  ['6.4', 'RST_STREAM on stream 0', [reset(0)], connectionError(protocol)],
  ['6.4', 'RST_STREAM on an idle stream', [reset(1)], connectionError(protocol)],
  [
    '6.4',
    'RST_STREAM with a length other than 4',
    [post(1), frame(Frame.reset, 0, 1, '\0\0\0')],
    connectionError(frameSize),
  ],
  ['6.5', 'SETTINGS with ACK and a payload', [frame(Frame.settings, Flag.ack, 0, '\0')], connectionError(frameSize)],
  ['6.5', 'SETTINGS on a stream', [frame(Frame.settings, 0, 1, setting(3, 100))], connectionError(protocol)],
  [
    '6.5',
    'SETTINGS with a length other than a multiple of 6',
    [frame(Frame.settings, 0, 0, '\0\x03\0')],
    connectionError(frameSize),
  ],
  ['6.5.2', 'SETTINGS_ENABLE_PUSH other than 0 or 1', [settings(setting(2, 2))], connectionError(protocol)],
  [
    '6.5.2',
    'SETTINGS_INITIAL_WINDOW_SIZE above the maximum',
    [settings(setting(INITIAL_WINDOW, 2 ** 31))],
    connectionError(flowControl),
  ],
  [
    '6.5.2',
    'SETTINGS_MAX_FRAME_SIZE below the initial value',
    [settings(setting(5, 16_383))],
    connectionError(protocol),
  ],
  ['6.5.2', 'SETTINGS_MAX_FRAME_SIZE above the maximum', [settings(setting(5, 2 ** 24))], connectionError(protocol)],
  ['6.7', 'PING on a stream', [ping('h2spec--', 0, 1)], connectionError(protocol)],
  ['6.7', 'PING with a length other than 8', [ping('\0\0\0\0\0\0')], connectionError(frameSize)],
  ['6.8', 'GOAWAY on a stream', [goaway(0, 1)], connectionError(protocol)],
  ['6.9', 'WINDOW_UPDATE with an increment of 0', [window(0, 0)], connectionError(protocol)],
  ['6.9', 'WINDOW_UPDATE with an increment of 0 on a stream', [post(1), window(1, 0)], streamError(protocol)],
  [
    '6.9',
    'WINDOW_UPDATE with a length other than 4',
    [frame(Frame.windowUpdate, 0, 0, '\0\0\x01')],
    connectionError(frameSize),
  ],
  [
    '6.9.1',
    'WINDOW_UPDATE frames above 2^31-1',
    [window(0, 2 ** 31 - 1), window(0, 2 ** 31 - 1)],
    connectionError(flowControl),
  ],
  [
    '6.9.1',
    'WINDOW_UPDATE frames above 2^31-1 on a stream',
    [post(1), window(1, 2 ** 31 - 1), window(1, 2 ** 31 - 1)],
    streamError(flowControl),
  ],
  [
    '6.9.2',
    'SETTINGS_INITIAL_WINDOW_SIZE above the maximum window',
    [settings(setting(INITIAL_WINDOW, 2 ** 31))],
    connectionError(flowControl),
  ],
  [
    '6.10',
    'CONTINUATION followed by another frame',
    [unfinished(1), continuation(1, block([['x', '1']]), 0), data(1)],
    connectionError(protocol),
  ],
  [
    '6.10',
    'CONTINUATION on stream 0',
    [unfinished(1), continuation(0, block([['x', '1']]))],
    connectionError(protocol),
  ],
  [
    '6.10',
    'CONTINUATION after HEADERS with END_HEADERS',
    [post(1), continuation(1, block([['x', '1']]))],
    connectionError(protocol),
  ],
  [
    '6.10',
    'CONTINUATION after CONTINUATION with END_HEADERS',
    [unfinished(1, 0), continuation(1, ''), continuation(1, '')],
    connectionError(protocol),
  ],
  ['6.10', 'CONTINUATION after DATA', [post(1), data(1, 'test', 0), continuation(1, '')], connectionError(protocol)],
  [
    '8.2',
    'PUSH_PROMISE',
    [post(1), frame(Frame.pushPromise, Flag.endHeaders, 1, Buffer.concat([uint32(3), FIELDS]))],
    connectionError(protocol),
  ],
  ['HPACK 2.3.3', 'an index without an entry', [blockAnd('\xc6')], connectionError(compression)],
  [
    'HPACK 2.3.3',
    'a literal whose name has an index without an entry',
    [blockAnd('\x7f\x07\x01a')],
    connectionError(compression),
  ],
  ['HPACK 4.2', 'a table size update at the end of a block', [blockAnd('\x21')], connectionError(compression)],
  [
    'HPACK 5.2',
    'Huffman padding longer than 7 bits',
    [blockAnd('\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff')],
    connectionError(compression),
  ],
  [
    'HPACK 5.2',
    'Huffman padding of zeros',
    [blockAnd('\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90')],
    connectionError(compression),
  ],
  [
    'HPACK 5.2',
    'the Huffman code for the end',
    [blockAnd('\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f')],
    connectionError(compression),
  ],
  ['HPACK 6.1', 'index 0', [blockAnd('\x80')], connectionError(compression)],
  [
    'HPACK 6.3',
    'a table size above SETTINGS_HEADER_TABLE_SIZE',
    [frame(Frame.headers, ALL, 1, Buffer.concat([Buffer.from('\x3f\xe2\x1f', 'latin1'), FIELDS]))],
    connectionError(compression),
  ],
];

/**
 * What h2spec wants to be an error, and nghttp2 may ignore: frames of a stream that it has closed may still have been on their
 * way (RFC 9113, 5.1), and it takes a skipped stream for a closed one. Since 1.70 it ignores priorities (RFC 9113, 5.3.2).
 */
const IGNORED: [section: string, sends: string, frames: Case[2]][] = [
  ['5.1', 'closed: DATA after RST_STREAM', [post(1), reset(1), data(1)]],
  ['5.1', 'closed: HEADERS after RST_STREAM', [post(1), reset(1), ignored(1)]],
  ['5.1', 'closed: DATA', afterAnswer(data(1))],
  ['5.1', 'closed: HEADERS', afterAnswer(ignored(1))],
  ['5.1.1', 'a stream identifier smaller than the previous one', [hold(5), ignored(3)]],
  ['5.3.1', 'PRIORITY that depends on itself', [priority(2, 2)]],
  ['6.3', 'PRIORITY on stream 0', [priority(0, 1)]],
];

/** What has to be accepted: the stream is answered. */
const ACCEPTED: [section: string, sends: string, frames: Buffer[]][] = [
  ['4.1', 'a frame of unknown type', [frame(0x16, 0, 0, '\0\0\0\0\0\0\0\0'), get(1)]],
  ['4.1', 'a frame with undefined flags', [ping('h2spec--', 0x16), get(1)]],
  ['4.1', 'a frame with the reserved bit', [ping('h2spec--', 0, 2 ** 31), get(1)]],
  ['4.2', 'DATA of 2^14 bytes', [post(1), data(1, Buffer.alloc(16_384))]],
  ['5.5', 'an extension frame', [frame(0xff, 0, 0, 'h2spec'), get(1)]],
  ['6.5.2', 'SETTINGS with an unknown identifier', [settings(setting(0xff, 1)), get(1)]],
  [
    '6.10',
    'several CONTINUATION frames',
    [unfinished(1), continuation(1, block([['x', '1']]), 0), continuation(1, block([['y', '1']]))],
  ],
  ['7', 'RST_STREAM with an unknown code on another stream', [post(1), reset(1, 0xff), get(3)]],
  ['generic 3.3', 'PRIORITY of an idle stream', [priority(1, 0), get(1)]],
  ['generic 3.3', 'PRIORITY of a closed stream', [post(1), reset(1), priority(1, 0), get(3)]],
  [
    'generic 3.2',
    'HEADERS with padding and a priority',
    [
      frame(
        Frame.headers,
        ALL | Flag.padded | Flag.priority,
        1,
        Buffer.concat([Buffer.from([2]), uint32(0), Buffer.from([255]), FIELDS, Buffer.alloc(2)]),
      ),
    ],
  ],
  ['generic 3.1', 'DATA with padding', [post(1), data(1, '\x02test\0\0', Flag.endStream | Flag.padded)]],
  ['generic 4', 'a HEAD request', [get(1, set(':method', 'HEAD'))]],
  [
    'generic 4',
    'a POST request with trailers',
    [post(1, [['trailer', 'x-test']]), data(1, 'test', 0), frame(Frame.headers, ALL, 1, block([['x-test', 'ok']]))],
  ],
  [
    'generic 5',
    'an indexed header, and literals with and without indexing',
    [
      frame(
        Frame.headers,
        ALL,
        1,
        Buffer.concat([
          Buffer.from([0x82, 0x87]),
          block([[':authority', HOST]]),
          Buffer.from('\x84\x40\x01a\x01b\x10\x01c\x01d\xbe', 'latin1'),
        ]),
      ),
    ],
  ],
  [
    'generic 5',
    'a table size update at the start of a block',
    [frame(Frame.headers, ALL, 1, Buffer.concat([Buffer.from([0x20]), FIELDS]))],
  ],
];

const act = async (raw: RawHttp2, frames: Case[2]) => {
  if (Array.isArray(frames)) raw.send(...frames);
  else await frames(raw);
};

describe('as h2spec demands, a client that sends', () => {
  it.each(ERRORS)('%s %s gets an error', async (_section, _sends, frames, verdicts) => {
    const raw = await connect();
    await act(raw, frames);
    const isOfConnection = !verdicts.some((expected) => expected.startsWith('RESET'));
    if (isOfConnection) raw.send(ignored(101));
    expect(verdicts).toContain(await verdict(raw));
    expect(paths).not.toContain('/ignored');
  });

  it.each(ACCEPTED)('%s %s is answered', async (_section, _sends, frames) => {
    const raw = await connect();
    raw.send(...frames);
    const response = await raw.next(({ type }) => [Frame.headers, Frame.goaway].includes(type as 1 | 7));
    expect(response?.type).toBe(Frame.headers);
  });
});

describe('other than h2spec demands, a client that sends', () => {
  it.each(IGNORED)('%s %s may stay connected, but gets no answer', async (_section, _sends, frames) => {
    const raw = await connect();
    await act(raw, frames);
    expect(['open', ...streamError(streamClosed, protocol)]).toContain(await verdict(raw));
    expect(paths).not.toContain('/ignored');
  });

  // Node.js takes it for an attack.
  it('6.7 an acknowledgement of no PING is disconnected', async () => {
    const raw = await connect();
    raw.send(ping('unwanted', Flag.ack));
    expect(await verdict(raw)).toBe('closed');
  });
});

describe('as h2spec demands, the server', () => {
  const nextData = async (raw: RawHttp2) => (await raw.next(({ type }) => type === Frame.data))?.payload.toString();

  it('3.5 sends its preface first', async () => {
    const raw = await connect();
    const first = await raw.next(() => true);
    expect([first?.type, first?.flags]).toEqual([Frame.settings, 0]);
  });

  it('3.5 closes a connection with an invalid preface', async () => {
    const raw = await connect(PREFACE.replace('PRI', 'GET'));
    expect(await verdict(raw)).toBe('closed');
  });

  it('5.4.1 closes the connection after a connection error', async () => {
    const raw = await connect();
    raw.send(ping('h2spec--', 0, 1));
    await raw.closed();
  });

  it('6.5.3 processes settings in their order, and acknowledges them', async () => {
    const raw = await connect();
    raw.send(settings(setting(INITIAL_WINDOW, 100), setting(INITIAL_WINDOW, 1)), get(1));
    expect(await nextData(raw)).toBe(BODY.slice(0, 1));
    for (let count = 0; count < 2; count++) {
      expect(await raw.next(({ type, flags }) => type === Frame.settings && flags === Flag.ack)).not.toBeNull();
    }
  });

  it('6.7 answers PING with the same payload', async () => {
    const raw = await connect();
    raw.send(ping('wanted!!'));
    const answer = await raw.next(({ type }) => type === Frame.ping);
    expect([answer?.flags, answer?.payload.toString()]).toEqual([Flag.ack, 'wanted!!']);
  });

  it('6.9.2 adjusts windows when the initial size changes', async () => {
    const raw = await connect();
    raw.send(settings(setting(INITIAL_WINDOW, 0)), get(1), settings(setting(INITIAL_WINDOW, 1)));
    expect(await nextData(raw)).toBe(BODY.slice(0, 1));
  });

  it('6.9.2 tracks a window that has become negative', async () => {
    const raw = await connect();
    raw.send(settings(setting(INITIAL_WINDOW, 3)), get(1));
    expect(await nextData(raw)).toBe(BODY.slice(0, 3));
    // The window is -1, then 1.
    raw.send(settings(setting(INITIAL_WINDOW, 2)), window(1, 2));
    expect(await nextData(raw)).toBe(BODY.slice(3, 4));
  });

  it('7 closes the connection after a GOAWAY of the client with any code, without an error', async () => {
    const raw = await connect();
    raw.send(goaway(0xff));
    expect(await verdict(raw)).not.toMatch(/RESET/);
  });
});
