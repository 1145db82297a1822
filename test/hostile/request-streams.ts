import fc from 'fast-check';

/** Mostly the one valid value, sometimes a lookalike that lenient parsers accept. */
const mostly = (right: string, ...wrong: string[]) =>
  fc.oneof({ weight: 60, arbitrary: fc.constant(right) }, fc.constantFrom(right, ...wrong));

const lineEnd = mostly('\r\n', '\n', '\r', '\r\r\n', '\r\n ', '\r\n\t', '\n\r', '\0\r\n', ' \r\n');
const gap = mostly(' ', '  ', '\t', '', ' \t', '\x0b');
const colon = mostly(': ', ':', ' : ', ':\t', '\t:', ':  ', ' ', ':\x0b', ': \0');
const tail = mostly('', ' ', '\t', ' \t ', '\x0c', '\0', ',', ';');

const METHODS = ['GET', 'GET', 'POST', 'PUT', 'HEAD', 'DELETE', 'OPTIONS', 'PATCH', 'M-SEARCH', 'QUERY', 'BREW'];
const method = fc.oneof(
  { weight: 40, arbitrary: fc.constantFrom(...METHODS) },
  fc.constantFrom('get', 'Post', 'CONNECT', 'PRI', 'G ET', 'GET\0', ' GET', '', 'GE:T', 'SOURCE', 'X_1'),
);
const target = fc.oneof(
  {
    weight: 40,
    arbitrary: fc.constantFrom('/', '/a', '/a/b?c=d', '/%00?x=y&z', "/~!$&'()*+,;=:@", '/a//../b', '/?a?b'),
  },
  fc.constantFrom(
    '/a b',
    '/a\tb',
    '/a#b',
    '/\xe9',
    '/"<>\\^`{|}',
    '*',
    'http://h/a',
    'h:80',
    '',
    '/\x7f',
    '/\x01',
    '//h/a',
  ),
);
const version = mostly(
  'HTTP/1.1',
  'HTTP/1.0',
  'HTTP/1.0',
  'HTTP/1.2',
  'HTTP/2.0',
  'HTTP/0.9',
  'http/1.1',
  'HTTP/1.',
  'HTTP/11',
  'HTTP/1.1 ',
  'HTTP/01.1',
  'HTTP/1,1',
  '',
);

/** Framing headers, and lookalikes. */
const NAMES = [
  'X-A',
  'X-A',
  'Connection',
  'Content-Length',
  'Transfer-Encoding',
  'Expect',
  'Upgrade',
  'Host',
  'TE',
  'Trailer',
];
const name = fc.oneof(
  { weight: 30, arbitrary: fc.constantFrom(...NAMES) },
  fc.constantFrom(
    'content-length',
    'TRANSFER-ENCODING',
    'connectioN',
    'Content_Length',
    'X(A)',
    'X A',
    'X\0',
    '',
    '\x80',
    "!#$%&'*+-.^_`|~",
    'Keep-Alive',
  ),
);
const VALUES = ['1', '0', 'close', 'keep-alive', 'chunked', 'upgrade', 'websocket', '100-continue', 'h', 'trailers'];
const value = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...VALUES) },
  fc.constantFrom(
    '',
    '5',
    '05',
    '+5',
    '-1',
    '5, 5',
    '5,6',
    '0x5',
    '5 5',
    '1e1',
    '99999999999999999999',
    'Chunked',
    'chunked, chunked',
    'gzip, chunked',
    'chunked, gzip',
    'identity',
    'xchunked',
    'chunked;a=b',
    '"chunked"',
    'close, keep-alive',
    'keep-alive, upgrade',
    ',close,',
    'closed',
    'Upgrade',
    'x\xff\x80',
    'a\x01b',
    'a\x7fb',
    'content-length',
    'h2c',
  ),
);
const header = fc.tuple(name, colon, value, tail, lineEnd).map((parts) => parts.join(''));

const BODIES = [
  '',
  'x',
  'hello',
  '0\r\n\r\n',
  'GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n',
  '5\r\nhello\r\n0\r\n\r\n',
  '\r\n\r\n',
];

const size = fc.tuple(
  mostly('', '0', '00', ' ', '+', '0x', '-'),
  mostly('', ' ', '\t', ';a', ';a=b', ' ;a', '; a="b;\\"c"', ';', ';\n', ';a\0', '.', 'g'),
);
const chunk = fc
  .record({
    text: fc.constantFrom('a', 'hello', '\r\n', '0\r\n\r\n', 'GET / HTTP/1.1\r\n\r\n'),
    around: size,
    off: mostly('', '+', '-'),
    end: lineEnd,
    after: lineEnd,
    upper: fc.boolean(),
  })
  .map(({ text, around, off, end, after, upper }) => {
    const length = text.length + (off === '+' ? 1 : off === '-' ? -1 : 0);
    const digits = upper ? length.toString(16).toUpperCase() : length.toString(16);
    return `${around[0]}${digits}${around[1]}${end}${text}${after}`;
  });
const chunks = fc
  .record({
    some: fc.array(chunk, { maxLength: 4 }),
    last: mostly('0', '00', '', '0;a', '0 ', '-0'),
    end: lineEnd,
    trailers: fc.array(header, { maxLength: 1 }),
    close: lineEnd,
  })
  .map(({ some, last, end, trailers, close }) => `${some.join('')}${last}${end}${trailers.join('')}${close}`);

/** The framing of a body, and the body. */
const framed = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ line: '', body: '' }) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(
        fc.constantFrom(...BODIES),
        fc.constantFrom('Content-Length', 'content-length'),
        colon,
        mostly('', '+1', '-1'),
        tail,
        lineEnd,
      )
      .map(([body, called, between, off, behind, end]) => ({
        line: `${called}${between}${body.length + Number(off)}${behind}${end}`,
        body,
      })),
  },
  {
    weight: 5,
    arbitrary: fc
      .tuple(
        chunks,
        mostly(
          'chunked',
          'Chunked',
          'chunked, chunked',
          'identity',
          'gzip, chunked',
          'chunked, gzip',
          ' chunked\t',
          'chunke',
          'chunked ',
        ),
        colon,
        tail,
        lineEnd,
      )
      .map(([body, coding, between, behind, end]) => ({
        line: `Transfer-Encoding${between}${coding}${behind}${end}`,
        body,
      })),
  },
);

const request = fc
  .record({
    before: mostly('', '\r\n', '\n', '\r\n\r\n', ' ', '\r'),
    line: fc.tuple(method, gap, target, gap, version, lineEnd),
    host: mostly('Host: h\r\n', '', 'Host: h\r\nHost: h\r\n', 'host:h\r\n'),
    headers: fc.array(header, { maxLength: 3 }),
    framed,
    close: lineEnd,
  })
  .map(
    ({ before, line, host, headers, framed: { line: framing, body }, close }) =>
      `${before}${line.join('')}${host}${headers.join('')}${framing}${close}${body}`,
  );

/** Consecutive requests that are almost valid. */
export const requestStream: fc.Arbitrary<{ text: string }> = fc
  .array(request, { minLength: 1, maxLength: 4 })
  .map((requests) => {
    const text = requests.join('');
    return { text, [fc.toStringMethod]: () => JSON.stringify(text) };
  });
