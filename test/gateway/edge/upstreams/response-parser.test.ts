import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ResponseEvents, ResponseParser } from '../../../../src/gateway/edge/upstreams/response-parser.ts';
import { MalformedMessage } from '../../../../src/lib/http/response-head.ts';
import { fuzz } from '../../../support/fuzz.ts';

const LIMIT = 1000;

interface Outcome {
  /** Status lines and headers of the responses, interim ones included. */
  heads: string[];
  body: string;
  /** Null until the response is complete. */
  trailers: string[] | null;
  refused: boolean;
  /** Bytes after the response. */
  rest: string;
}

/** Feeds pieces to a parser like a connection, and returns the outcome. */
function parse(
  pieces: readonly (string | Buffer)[],
  request = { method: 'GET', upgrade: false },
  end = false,
): Outcome {
  const outcome: Outcome = { heads: [], body: '', trailers: null, refused: false, rest: '' };
  const events: ResponseEvents = {
    onInterim: (head) => outcome.heads.push(`${head.status}`),
    onHead: (head) => outcome.heads.push([head.status, head.reason, ...head.headers].join('|')),
    onBody: (piece) => {
      expect(piece.length).toBeGreaterThan(0);
      outcome.body += piece.toString('latin1');
    },
    onComplete: (trailers) => {
      outcome.trailers = trailers;
    },
  };
  const parser = new ResponseParser(LIMIT);
  parser.expect(request, events);
  try {
    for (const piece of pieces) {
      const bytes = Buffer.from(piece as string, 'latin1');
      const taken = parser.idle || parser.upgraded ? 0 : parser.push(bytes);
      outcome.rest += bytes.toString('latin1', taken);
    }
    if (end) parser.end();
  } catch (error) {
    expect(error).toBeInstanceOf(MalformedMessage);
    outcome.refused = true;
  }
  return outcome;
}

const OK = 'HTTP/1.1 200 OK\r\n';

describe('a response', () => {
  it('with a length ends after that many bytes', () => {
    const outcome = parse([`${OK}X-A: 1\r\nContent-Length: 5\r\n\r\nhello and more`]);
    expect(outcome).toMatchObject({ body: 'hello', trailers: [], rest: ' and more', refused: false });
    expect(outcome.heads).toEqual(['200|OK|X-A|1|Content-Length|5']);
  });

  it('in chunks is joined, with extensions ignored and trailers kept', () => {
    const chunks = '5;name="v"\r\nhello\r\n0B \r\n and more..\r\n0\r\nX-Sum: 1\r\nx-sum:2 \r\n\r\nrest';
    const outcome = parse([`${OK}Transfer-Encoding: Chunked\r\n\r\n${chunks}`]);
    expect(outcome).toMatchObject({ body: 'hello and more..', trailers: ['X-Sum', '1', 'x-sum', '2'], rest: 'rest' });
  });

  it('without length or chunks ends with the connection only', () => {
    expect(parse([OK, '\r\nall ', 'there is']).trailers).toBeNull();
    expect(parse([OK, '\r\nall ', 'there is'], undefined, true)).toMatchObject({ body: 'all there is', trailers: [] });
  });

  it.each([
    ['HEAD', `${OK}Content-Length: 5\r\n\r\n`],
    ['HEAD', `${OK}Transfer-Encoding: chunked\r\n\r\n`],
    ['GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n'],
  ])('to %s can have no body: %j', (method, text) => {
    expect(parse([`${text}rest`], { method, upgrade: false })).toMatchObject({ body: '', trailers: [], rest: 'rest' });
  });

  it('follows its interim responses', () => {
    const interim = 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n';
    const outcome = parse([`${interim}${OK}Content-Length: 0\r\n\r\n`]);
    expect(outcome.heads).toEqual(['100', '103', '200|OK|Content-Length|0']);
    expect(outcome.trailers).toEqual([]);
  });

  it('may follow 100 interim responses, but no more', () => {
    const interim = 'HTTP/1.1 102 Processing\r\n\r\n';
    expect(parse([`${interim.repeat(100)}${OK}Content-Length: 0\r\n\r\n`]).trailers).toEqual([]);
    expect(parse([interim.repeat(101)]).refused).toBe(true);
  });

  it('may follow interim responses that have as many bytes as one head, but no more', () => {
    const final = `${OK}Content-Length: 0\r\n\r\n`;
    const interim = (bytes: number) => `HTTP/1.1 103 Early Hints\r\nLink: ${'a'.repeat(bytes - 4)}\r\n\r\n`;
    expect(parse([`${interim(LIMIT / 2).repeat(2)}${final}`]).trailers).toEqual([]);
    expect(parse([`${interim(LIMIT / 2).repeat(2)}${interim(5)}${final}`]).refused).toBe(true);
    const parser = new ResponseParser(LIMIT);
    const nothing = { onInterim() {}, onHead() {}, onBody() {}, onComplete() {} };
    for (let request = 0; request < 3; request++) {
      parser.expect({ method: 'GET', upgrade: false }, nothing);
      parser.push(Buffer.from(`${interim(LIMIT / 2)}${final}`));
    }
    expect(parser.idle).toBe(true);
  });

  it('switches protocols only if the request asked for it', () => {
    const text = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nbytes';
    expect(parse([text], { method: 'GET', upgrade: true })).toMatchObject({ rest: 'bytes', refused: false });
    expect(parse([text]).refused).toBe(true);
  });

  it.each([
    ['HTTP/1.1 200 OK\r\n', true],
    ['HTTP/1.1 200 OK\r\nConnection: x, Close\r\n', false],
    ['HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\n', false],
    ['HTTP/1.1 200 OK\r\nConnection: close\r\nConnection: x\r\n', false],
    ['HTTP/1.1 200 OK\r\nX-Ten-Long: close\r\n', true],
    ['HTTP/1.0 200 OK\r\n', false],
    ['HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n', true],
  ])('tells whether the connection can be reused: %j', (head, expected) => {
    const parser = new ResponseParser(LIMIT);
    parser.expect({ method: 'HEAD', upgrade: false }, { onInterim() {}, onHead() {}, onBody() {}, onComplete() {} });
    parser.push(Buffer.from(`${head}Keep-Alive: timeout=5, max=100\r\n\r\n`));
    expect([parser.head?.keepAlive, parser.head?.keepAliveSeconds]).toEqual([expected, 5]);
  });
});

describe('the parser of a connection', () => {
  const nothing: ResponseEvents = { onInterim() {}, onHead() {}, onBody() {}, onComplete() {} };
  const push = (parser: ResponseParser, text: string) => parser.push(Buffer.from(text, 'latin1'));
  const stateOf = ({ idle, awaitsHead, started, upgraded }: ResponseParser) => ({
    idle,
    awaitsHead,
    started,
    upgraded,
  });

  it('reports the progress of the response', () => {
    const parser = new ResponseParser(LIMIT);
    const idle = { idle: true, awaitsHead: false, started: false, upgraded: false };
    expect(stateOf(parser)).toEqual(idle);
    expect(push(parser, 'unsolicited')).toBe(0);
    parser.expect({ method: 'GET', upgrade: true }, nothing);
    expect(stateOf(parser)).toEqual({ ...idle, idle: false, awaitsHead: true });
    push(parser, 'H');
    expect(stateOf(parser)).toEqual({ ...idle, idle: false, awaitsHead: true, started: true });
    push(parser, 'TTP/1.1 101 Switching Protocols\r\n\r\n');
    expect(stateOf(parser)).toEqual({ idle: false, awaitsHead: false, started: true, upgraded: true });
    parser.expect({ method: 'GET', upgrade: false }, nothing);
    expect(stateOf(parser)).toEqual({ ...idle, idle: false, awaitsHead: true });
  });

  it('starts again for each response', () => {
    const parser = new ResponseParser(LIMIT);
    const bodies: string[] = [];
    const events = { ...nothing, onBody: (piece: Buffer) => bodies.push(piece.toString()) };
    const chunked = `${OK}Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\nX: 1\r\n\r\n`;
    for (const text of [chunked, chunked, `${OK}Content-Length: 3\r\n\r\ntwo`, chunked]) {
      parser.expect({ method: 'GET', upgrade: false }, events);
      expect([push(parser, text), parser.idle]).toEqual([text.length, true]);
    }
    expect(bodies).toEqual(['one', 'one', 'two', 'one']);
  });

  it('completes a response at the end of the connection only if nothing else delimits it', () => {
    const parser = new ResponseParser(LIMIT);
    expect(parser.end()).toBe(false);
    for (const [head, complete] of [
      ['', true],
      ['Content-Length: 9\r\n', false],
    ] as const) {
      parser.expect({ method: 'GET', upgrade: false }, nothing);
      push(parser, `${OK}${head}\r\nbody`);
      expect(parser.end()).toBe(complete);
    }
  });

  it('reports nothing after it has been stopped by an event', () => {
    for (const framing of ['Content-Length: 4', 'Transfer-Encoding: chunked', 'X: delimited by the end']) {
      const parser = new ResponseParser(LIMIT);
      const seen: string[] = [];
      const events = {
        ...nothing,
        onHead: () => {
          seen.push('head');
          parser.stop();
        },
        onBody: () => seen.push('body'),
        onComplete: () => seen.push('complete'),
      };
      parser.expect({ method: 'GET', upgrade: false }, events);
      push(parser, `${OK}${framing}\r\n\r\n4\r\nbody\r\n0\r\n\r\n`);
      expect(seen).toEqual(['head']);
    }
  });
});

describe('the parser repairs', () => {
  const body = 'Content-Length: 2\r\n\r\nhi';
  const chunks = '2\r\nhi\r\n0\r\n\r\n';
  it.each([
    ['lines that end in LF', 'HTTP/1.1 200 OK\nX-A: 1\nContent-Length: 2\n\nhi', 'X-A|1|Content-Length|2'],
    ['one line that ends in LF', `${OK}X-A: 1\n${body}`, 'X-A|1|Content-Length|2'],
    [
      'an empty line that is LF alone, with CR LF twice in the body',
      `${OK}Content-Length: 4\r\n\n\r\n\r\n`,
      'Content-Length|4',
    ],
    ['empty lines before it', `\r\n\n${OK}${body}`, 'Content-Length|2'],
    ['white space in the status line', `HTTP/1.1  200\t OK \r\n${body}`, 'Content-Length|2'],
    ['a later minor version', `HTTP/1.2 200 OK\r\n${body}`, 'Content-Length|2'],
    ['ICY instead of HTTP/1.0', `ICY 200 OK\r\n${body}`, 'Content-Length|2'],
    ['a bare CR in a value', `${OK}X-A: a\rX-B: b\r\n${body}`, 'X-A|a X-B: b|Content-Length|2'],
    ['a NUL in a value', `${OK}X-A: a\0b\r\n${body}`, 'X-A|a b|Content-Length|2'],
    ['a folded line', `${OK}X-A: a\r\n \tb\r\n${body}`, 'X-A|a b|Content-Length|2'],
    ['an indented line before the first header', `${OK} Content-Length: 9\r\n${body}`, 'Content-Length|2'],
    ['a space before the colon', `${OK}Content-Length : 2\r\n\r\nhi`, 'Content-Length|2'],
    ['a header without a name', `${OK}: a\r\n${body}`, 'Content-Length|2'],
    ['a header without a colon', `${OK}nothing\r\n${body}`, 'Content-Length|2'],
    ['a separator in a name', `${OK}X(A): a\r\n${body}`, 'Content-Length|2'],
    ['the same length twice', `${OK}Content-Length: 2\r\n${body}`, 'Content-Length|2'],
    ['a list of the same length', `${OK}Content-Length: 2, 2\r\n\r\nhi`, 'Content-Length|2'],
    [
      'a length beside chunks',
      `${OK}Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
      'Transfer-Encoding|chunked',
    ],
    [
      'two lengths beside chunks',
      `${OK}Content-Length: 9\r\nContent-Length: 8\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
      'Transfer-Encoding|chunked',
    ],
    [
      'chunked twice',
      `${OK}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
      'Transfer-Encoding|chunked|Transfer-Encoding|chunked',
    ],
    [
      'the encoding identity',
      `${OK}Transfer-Encoding: identity\r\n${body}`,
      'Transfer-Encoding|identity|Content-Length|2',
    ],
  ])('%s', (_what, text, headers) => {
    for (const pieces of [[text], [...text]]) {
      const outcome = parse(pieces);
      expect(outcome).toMatchObject({ trailers: [], refused: false, rest: '' });
      expect(outcome.heads).toEqual([`200|OK|${headers}`]);
      expect(outcome.body).toMatch(/^(?:hi|\r\n\r\n)$/);
    }
  });

  it.each([
    ['lines that end in LF', '2\nhi\n0\n\n'],
    ['an extension that ends in LF', '2;a\nhi\r\n0\r\n\r\n'],
    ['a malformed trailer', '2\r\nhi\r\n0\r\n: 1\r\n\r\n'],
    ['the end of the connection after the last chunk', '2\r\nhi\r\n0\r\n'],
  ])('in a chunked body %s', (_what, text) => {
    const whole = `${OK}Transfer-Encoding: chunked\r\n\r\n${text}`;
    for (const pieces of [[whole], [...whole]])
      expect(parse(pieces, undefined, true)).toMatchObject({ body: 'hi', trailers: [], refused: false, rest: '' });
  });

  it('statuses above 599 by passing them on', () => {
    expect(parse([`HTTP/1.1 999 X\r\n${body}`]).heads).toEqual(['999|X|Content-Length|2']);
  });

  it.each([
    ['HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n'],
    [`${OK}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n`],
    [`${OK}Transfer-Encoding: chunked, chunked\r\n\r\n`],
  ])('but does not reuse the connection where another reader could see another end: %j', (head) => {
    const parser = new ResponseParser(LIMIT);
    parser.expect({ method: 'GET', upgrade: false }, { onInterim() {}, onHead() {}, onBody() {}, onComplete() {} });
    parser.push(Buffer.from(`${head}${chunks}`));
    expect([parser.idle, parser.head?.keepAlive]).toEqual([true, false]);
  });
});

describe('the parser rejects', () => {
  it.each([
    ['what is no HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['a status of four digits', 'HTTP/1.1 2000 OK\r\n\r\n'],
    ['a status below 100', 'HTTP/1.1 099 OK\r\n\r\n'],
    ['endless empty lines', '\r\n'.repeat(20)],
    ['a status line without a status', 'HTTP/1.1\r\n\r\n'],
    ['two lengths that differ', `${OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\n`],
    ['a signed length', `${OK}Content-Length: +1\r\n\r\n`],
    ['an empty length', `${OK}Content-Length:\r\n\r\n`],
    ['a length beyond all numbers', `${OK}Content-Length: 99999999999999999999\r\n\r\n`],
    ['another encoding', `${OK}Transfer-Encoding: gzip, chunked\r\n\r\n`],
    ['too large a head', `${OK}X-A: ${'a'.repeat(LIMIT)}\r\n\r\n`],
    ['a head that never ends', `${OK}${'X-A: a\r\n'.repeat(LIMIT / 8)}`],
  ])('%s', (_what, text) => {
    expect(parse([text]).refused).toBe(true);
    expect(parse([...text]).refused).toBe(true);
  });

  it.each([
    ['no size', '\r\n'],
    ['a size that is no number', 'g\r\n'],
    ['a size with a prefix', '0x5\r\nhello\r\n'],
    ['a negative size', '-5\r\nhello\r\n'],
    ['a size beyond all numbers', 'fffffffffffffff\r\n'],
    ['a size that ends in CR alone', '5\rhello\r\n'],
    ['a chunk longer than its size', '5\r\nhello!\r\n'],
    ['a chunk that ends in CR alone', '5\r\nhello\r0\r\n\r\n'],
    ['endless extensions', `5;${'a'.repeat(5000)}`],
    ['too large trailers', `0\r\nX-A: ${'a'.repeat(LIMIT)}\r\n\r\n`],
  ])('in a chunked body %s', (_what, chunks) => {
    const text = `${OK}Transfer-Encoding: chunked\r\n\r\n${chunks}`;
    expect(parse([text]).refused).toBe(true);
    expect(parse([...text]).refused).toBe(true);
  });
});

/** Splits text into pieces of the given sizes. */
function piecesOf(text: string, sizes: readonly number[]): string[] {
  const pieces: string[] = [];
  let rest = text;
  for (const size of sizes) {
    pieces.push(rest.slice(0, size));
    rest = rest.slice(size);
  }
  return [...pieces, rest].filter((piece) => piece !== '');
}

const latin1 = fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)) });
const token = fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}$/).map((name) => `x-${name}`);
const value = fc.stringMatching(/^(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]{0,20}[!-~\x80-\xff])?)?$/);
const fields = fc.array(fc.tuple(token, value), { maxLength: 8 });
const lines = (list: [string, string][]) => list.map(([name, text]) => `${name}: ${text}\r\n`).join('');
const sizes = fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 40 });

describe('any input', () => {
  it('parses a valid response the same way however it is split', () => {
    fc.assert(
      fc.property(fields, fc.array(latin1), fields, fc.boolean(), sizes, (headers, parts, trailers, chunked, split) => {
        const body = parts.join('');
        const chunks = parts.filter((part) => part !== '').map((part) => `${part.length.toString(16)}\r\n${part}\r\n`);
        const text = chunked
          ? `${OK}${lines(headers)}Transfer-Encoding: chunked\r\n\r\n${chunks.join('')}0\r\n${lines(trailers)}\r\n`
          : `${OK}${lines(headers)}Content-Length: ${body.length}\r\n\r\n${body}`;
        const framing = chunked ? ['Transfer-Encoding', 'chunked'] : ['Content-Length', String(body.length)];
        expect(parse(piecesOf(`${text}rest`, split))).toEqual({
          heads: [['200', 'OK', ...headers.flat(), ...framing].join('|')],
          body,
          trailers: chunked ? trailers.flat() : [],
          refused: false,
          rest: 'rest',
        });
      }),
    );
  });

  it('gives the same result however it is split, and throws nothing but MalformedMessage', () => {
    const scrap = fc.oneof(
      latin1,
      fc.constantFrom(
        'HTTP/1.1 200 OK\r\n',
        'HTTP/1.1 100 Continue\r\n\r\n',
        'Transfer-Encoding: chunked\r\n',
        'Content-Length: 7\r\n',
        'X-A: b\r\n',
        '\r\n',
        '\r',
        '\n',
        '3\r\nabc\r\n',
        '0\r\n',
        '1;x\r\n',
      ),
    );
    fc.assert(
      fc.property(fc.array(scrap, { maxLength: 12 }), sizes, fc.boolean(), (scraps, split, begun) => {
        const text = `${begun ? 'HTTP/1.1 200 OK\r\n' : ''}${scraps.join('')}`;
        const whole = parse([text], undefined, true);
        const pieces = parse(piecesOf(text, split), undefined, true);
        // The rest of rejected input does not matter.
        if (whole.refused) pieces.rest = whole.rest;
        expect(pieces).toEqual(whole);
      }),
      fuzz(2000),
    );
  });
});
