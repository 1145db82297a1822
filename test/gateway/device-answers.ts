import { createServer, type Server } from 'node:net';

/** What a device sends, what a client gets, and which other proxies pass it on. */
export interface DeviceAnswer {
  what: string;
  /** Latin-1. The device then closes the connection. */
  bytes: string;
  /** The body that the client gets; null: a 502 that names the fault. */
  body: string | null;
  /** Of the 502. */
  fault?: RegExp;
  /** A header that the client gets. */
  header?: [name: string, value: string];
  status?: number;
  /**
   * Those that passed the body on, recorded on 2026-11-28 from the same bytes: c curl 7.88.1, g the ReverseProxy of Go 1.26.8,
   * n nginx 1.22.1, h HAProxy 2.6.12, the last two with buffers of 128 KiB.
   */
  peers: string;
}

const H = 'HTTP/1.1 200 OK\r\n';
const L = 'Content-Length: 2\r\n';
const C = 'Transfer-Encoding: chunked\r\n';
const CHUNKS = '2\r\nhi\r\n0\r\n\r\n';

type Row = [what: string, bytes: string, peers: string, more?: Partial<DeviceAnswer>];

const DELIVERED: readonly Row[] = [
  ['lines that end in LF', `HTTP/1.1 200 OK\nX-A: 1\n${L}\nhi`, 'cgnh', { header: ['x-a', '1'] }],
  ['lines that end in LF in HTTP/1.0, without a length', 'HTTP/1.0 200 OK\nContent-Type: text/html\n\nhi', 'cgnh'],
  ['one header that ends in LF', `${H}X-A: 1\n${L}\r\nhi`, 'cgnh', { header: ['x-a', '1'] }],
  ['only the status line ends in LF', `HTTP/1.1 200 OK\n${L}\r\nhi`, 'cgnh'],
  ['only the empty line ends in LF', `${H}${L}\nhi`, 'cgnh'],
  [
    'lines that end in LF, with CR LF twice in the body',
    'HTTP/1.1 200 OK\nContent-Length: 6\n\nh\r\n\r\ni',
    'cgnh',
    { body: 'h\r\n\r\ni' },
  ],
  ['a length beside chunks', `${H}${L}${C}\r\n${CHUNKS}`, 'cgnh'],
  ['a wrong length beside chunks', `${H}Content-Length: 99\r\n${C}\r\n${CHUNKS}`, 'cgnh'],
  ['two lengths beside chunks', `${H}${L}Content-Length: 3\r\n${C}\r\n${CHUNKS}`, 'cn'],
  ['a length that is no number beside chunks', `${H}Content-Length: -1\r\n${C}\r\n${CHUNKS}`, 'n'],
  ['the same length twice', `${H}${L}${L}\r\nhi`, 'cgnh'],
  ['the same length three times, in two spellings', `${H}${L}content-length: 2\r\nCONTENT-LENGTH:2\r\n\r\nhi`, 'cgnh'],
  ['a list of the same length', `${H}Content-Length: 2, 2\r\n\r\nhi`, 'cnh'],
  ['a length with leading zeros', `${H}Content-Length: 0002\r\n\r\nhi`, 'cgnh'],
  ['chunks in HTTP/1.0', `HTTP/1.0 200 OK\r\n${C}\r\n${CHUNKS}`, 'cnh'],
  ['chunked twice', `${H}${C}${C}\r\n${CHUNKS}`, 'cn'],
  ['a list with chunked twice', `${H}Transfer-Encoding: chunked, chunked\r\n\r\n${CHUNKS}`, 'cn'],
  ['chunked in capitals', `${H}Transfer-Encoding: CHUNKED\r\n\r\n${CHUNKS}`, 'cgnh'],
  ['the encoding identity with a length', `${H}Transfer-Encoding: identity\r\n${L}\r\nhi`, 'cn'],
  ['the encoding identity without a length', `${H}Transfer-Encoding: identity\r\n\r\nhi`, 'cn'],
  ['an empty transfer-encoding', `${H}Transfer-Encoding: \r\n${L}\r\nhi`, 'cnh'],
  ['two spaces before the status', `HTTP/1.1  200 OK\r\n${L}\r\nhi`, 'cgnh'],
  ['two spaces after the status', `HTTP/1.1 200  OK\r\n${L}\r\nhi`, 'cgnh'],
  ['a tab in the status line', `HTTP/1.1\t200\tOK\r\n${L}\r\nhi`, 'nh'],
  ['a space after the reason', `HTTP/1.1 200 OK \r\n${L}\r\nhi`, 'cgnh'],
  ['no reason', `HTTP/1.1 200\r\n${L}\r\nhi`, 'cgnh'],
  ['a space instead of the reason', `HTTP/1.1 200 \r\n${L}\r\nhi`, 'cgnh'],
  ['a reason in UTF-8', `HTTP/1.1 200 \xc3\x9cber\r\n${L}\r\nhi`, 'cgnh'],
  ['a control character in the reason', `HTTP/1.1 200 O\x07K\r\n${L}\r\nhi`, 'cgnh'],
  ['HTTP in small letters', `http/1.1 200 OK\r\n${L}\r\nhi`, 'cn'],
  ['HTTP/1.2', `HTTP/1.2 200 OK\r\n${L}\r\nhi`, 'gnh'],
  ['HTTP/2.0 in text', `HTTP/2.0 200 OK\r\n${L}\r\nhi`, 'cgnh'],
  ['ICY', `ICY 200 OK\r\n${L}\r\nhi`, 'n'],
  ['status 999', `HTTP/1.1 999 X\r\n${L}\r\nhi`, 'cgnh', { status: 999 }],
  ['status 600', `HTTP/1.1 600 X\r\n${L}\r\nhi`, 'cgnh', { status: 600 }],
  ['an empty line before it', `\r\n${H}${L}\r\nhi`, 'nh'],
  ['two empty lines before it', `\r\n\r\n${H}${L}\r\nhi`, 'h'],
  ['a folded header', `${H}X-A: one\r\n two\r\n${L}\r\nhi`, 'cgh', { header: ['x-a', 'one two'] }],
  [
    'a header folded with a tab, twice',
    `${H}X-A: one\r\n\ttwo\r\n  three\r\n${L}\r\nhi`,
    'cgh',
    { header: ['x-a', 'one two three'] },
  ],
  ['an indented line before the first header', `${H} X-A: 1\r\n${L}\r\nhi`, ''],
  ['a space before the colon', `${H}X-A : 1\r\n${L}\r\nhi`, 'cg', { header: ['x-a', '1'] }],
  ['a space before the colon of the length', `${H}Content-Length : 2\r\n\r\nhi`, 'cg'],
  ['no space after the colon', `${H}X-A:1\r\nContent-Length:2\r\n\r\nhi`, 'cgnh', { header: ['x-a', '1'] }],
  ['spaces around a value', `${H}X-A:  \t1 \t\r\n${L}\r\nhi`, 'cgnh', { header: ['x-a', '1'] }],
  ['a line without a colon', `${H}Debug output\r\n${L}\r\nhi`, ''],
  ['a header without a name', `${H}: 1\r\n${L}\r\nhi`, 'c'],
  ['a space within a name', `${H}X A: 1\r\n${L}\r\nhi`, 'cg'],
  ['a name in UTF-8', `${H}X-\xc3\x9c: 1\r\n${L}\r\nhi`, 'cn'],
  ['brackets in a name', `${H}X(A): 1\r\n${L}\r\nhi`, 'cn'],
  ['a status line among the headers', `${H}HTTP/1.1 200 OK\r\n${L}\r\nhi`, 'n'],
  ['a NUL in a value', `${H}X-A: a\0b\r\n${L}\r\nhi`, 'h', { header: ['x-a', 'a b'] }],
  ['a control character in a value', `${H}X-A: a\x01b\r\n${L}\r\nhi`, 'cnh', { header: ['x-a', 'a b'] }],
  ['a bare CR in a value', `${H}X-A: a\rb\r\n${L}\r\nhi`, 'c', { header: ['x-a', 'a b'] }],
  ['a value in UTF-8', `${H}X-A: \xc3\xbc\r\n${L}\r\nhi`, 'cgnh', { header: ['x-a', '\xc3\xbc'] }],
  ['an empty value', `${H}X-A:\r\n${L}\r\nhi`, 'cgnh', { header: ['x-a', ''] }],
  ['chunks that end in LF', `${H}${C}\r\n2\nhi\n0\n\n`, 'cnh'],
  ['a chunk whose size ends in LF', `${H}${C}\r\n2\nhi\r\n0\r\n\r\n`, 'cnh'],
  ['a chunk whose data end in LF', `${H}${C}\r\n2\r\nhi\n0\r\n\r\n`, 'cnh'],
  ['a last chunk that ends in LF', `${H}${C}\r\n2\r\nhi\r\n0\n\n`, 'cnh'],
  ['spaces after a size', `${H}${C}\r\n2  \r\nhi\r\n0  \r\n\r\n`, 'cgnh'],
  ['a size with leading zeros', `${H}${C}\r\n0002\r\nhi\r\n0000\r\n\r\n`, 'cgnh'],
  ['a chunk extension', `${H}${C}\r\n2;a="b"\r\nhi\r\n0;c\r\n\r\n`, 'cgnh'],
  ['no empty line after the last chunk', `${H}${C}\r\n2\r\nhi\r\n0\r\n`, ''],
  ['a malformed trailer', `${H}${C}\r\n2\r\nhi\r\n0\r\nnone\r\n\r\n`, 'n'],
  ['more than its length', `${H}${L}\r\nhi, and more`, 'cgnh'],
  ['a header of 10 KB', `${H}X-Long: ${'x'.repeat(10_000)}\r\n${L}\r\nhi`, 'cgnh'],
  ['two connection headers', `${H}Connection: keep-alive\r\nConnection: close\r\n${L}\r\nhi`, 'cgnh'],
  ['HTTP/1.0 without headers', 'HTTP/1.0 200 OK\r\n\r\nhi', 'cgnh'],
  ['HTTP/1.1 without a length', `${H}\r\nhi`, 'cgnh'],
];

const REFUSED: readonly Row[] = [
  ['no head at all', 'hi', '', { fault: /no status line/ }],
  ['a page without a head', '<h1>hi</h1>', '', { fault: /no status line/ }],
  ['a banner of SSH', 'SSH-2.0-OpenSSH_9.2\r\n', '', { fault: /SSH/ }],
  ['an alert of TLS', '\x15\x03\x01\x00\x02\x02\x46', '', { fault: /TLS/ }],
  ['frames of HTTP/2', '\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0', '', { fault: /HTTP\/2/ }],
  ['a status line without a status', `HTTP/1.1\r\n${L}\r\nhi`, 'n', { fault: /no status/ }],
  ['a status line without a version', `200 OK\r\n${L}\r\nhi`, 'n', { fault: /no version/ }],
  ['a status of two digits', `HTTP/1.1 20 OK\r\n${L}\r\nhi`, 'nh', { fault: /status line/ }],
  ['a status of four digits', `HTTP/1.1 2000 OK\r\n${L}\r\nhi`, 'nh', { fault: /status line/ }],
  ['a status in words', `HTTP/1.1 OK\r\n${L}\r\nhi`, 'n', { fault: /status line/ }],
  ['a status below 100', `HTTP/1.1 000 OK\r\n${L}\r\nhi`, 'nh', { fault: /status line/ }],
  ['two lengths that differ', `${H}${L}Content-Length: 3\r\n\r\nhi`, '', { fault: /content-lengths that differ/ }],
  ['a negative length', `${H}Content-Length: -1\r\n\r\nhi`, 'n', { fault: /content-length is not a number/ }],
  ['a length with a unit', `${H}Content-Length: 2 bytes\r\n\r\nhi`, 'cn', { fault: /content-length is not a number/ }],
  [
    'another transfer-encoding',
    `${H}Transfer-Encoding: gzip, chunked\r\n\r\n${CHUNKS}`,
    'n',
    { fault: /transfer-encoding/ },
  ],
  ['a switch of protocols that nobody asked for', 'HTTP/1.1 101 Switching\r\n\r\nhi', 'cn', { fault: /101/ }],
  ['a header of 70 KB', `${H}X-Long: ${'x'.repeat(70_000)}\r\n${L}\r\nhi`, 'cgnh', { fault: /longer than 64 KiB/ }],
];

export const DEVICE_ANSWERS: readonly DeviceAnswer[] = [
  ...DELIVERED.map(([what, bytes, peers, more]) => ({ what, bytes, peers, body: 'hi', ...more })),
  ...REFUSED.map(([what, bytes, peers, more]) => ({ what, bytes, peers, body: null, ...more })),
];

/** A device that answers `GET /<n>` with the bytes of that row, and requests of the agent properly. */
export function tableDevice(): Server {
  return createServer((socket) => {
    let asked = '';
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      asked += bytes;
      const path = /^GET \/(\d+) [\s\S]*\r\n\r\n$/.exec(asked)?.[1];
      if (path !== undefined) socket.end(DEVICE_ANSWERS[Number(path)]?.bytes ?? '', 'latin1');
      else if (asked.startsWith('OPTIONS')) socket.end('HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n');
    });
  });
}
