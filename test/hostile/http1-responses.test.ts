import { Agent } from 'node:http';
import { createServer, type Socket } from 'node:net';
import fc from 'fast-check';
import { expect, it, onTestFinished } from 'vitest';
import { type ResponseEvents, ResponseParser } from '../../src/gateway/edge/upstreams/response-parser.ts';
import { collect, TestEdge } from '../support/edge.ts';
import { FUZZ_MS, fuzz } from '../support/fuzz.ts';
import { ask } from '../support/http-request.ts';

const INTERIM = 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n';

/** One request, and the upstream's response to it. */
const exchange = fc.record({
  method: fc.constantFrom('GET', 'GET', 'HEAD', 'OPTIONS'),
  version: fc.constantFrom('1.1', '1.0'),
  headers: fc.subarray(['TE: trailers\r\n', 'Accept-Encoding: gzip\r\n', 'Connection: keep-alive\r\n']),
  last: fc.oneof({ weight: 9, arbitrary: fc.constant('') }, fc.constant('Connection: close\r\n')),
  answer: fc.record({
    before: fc.constantFrom('', '', INTERIM),
    version: fc.constantFrom('1.1', '1.1', '1.0'),
    status: fc.constantFrom(200, 200, 201, 204, 205, 299, 304, 404, 502),
    type: fc.constantFrom('', 'Content-Type: text/plain\r\n'),
    framing: fc.constantFrom('length', 'chunked', 'close'),
    body: fc.constantFrom('', 'x', 'y'.repeat(70_000), 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', '0\r\n\r\n'),
  }),
});
type Exchange = typeof exchange extends fc.Arbitrary<infer T> ? T : never;

const isBodyless = ({ method, answer: { status } }: Exchange) => method === 'HEAD' || status === 204 || status === 304;

/** Answers a request as planned. */
function answerTo(socket: Socket, planned: Exchange): void {
  const { before, version, status, type, framing, body } = planned.answer;
  const head = `${before}HTTP/${version} ${status} x\r\n${type}`;
  const sent = isBodyless(planned) ? '' : body;
  if (framing === 'length') socket.write(`${head}Content-Length: ${body.length}\r\n\r\n${sent}`);
  else if (framing === 'close' || version === '1.0') socket.end(`${head}Connection: close\r\n\r\n${sent}`);
  else {
    const chunk = sent === '' ? '' : `${sent.length.toString(16)}\r\n${sent}\r\n`;
    socket.write(
      `${head}Transfer-Encoding: chunked\r\n\r\n${isBodyless(planned) ? '' : `${chunk}0\r\nX-T: 1\r\n\r\n`}`,
    );
  }
}

/** Reads the response to a request as its client does. */
function read(bytes: Buffer, method: string) {
  const answer = { status: 0, isEncoded: false, body: '', complete: false, keepAlive: false, length: 0 };
  const events: ResponseEvents = {
    onInterim() {},
    onHead({ status, headers, keepAlive }) {
      const isEncoded = headers.some((name) => name.toLowerCase() === 'content-encoding');
      Object.assign(answer, { status, isEncoded, keepAlive });
    },
    onBody(piece) {
      answer.body += piece.toString('latin1');
    },
    onComplete() {
      answer.complete = true;
    },
  };
  const parser = new ResponseParser(65_536);
  parser.expect({ method, upgrade: false }, events);
  answer.length = parser.push(bytes);
  parser.end();
  return answer;
}

it('whatever an upstream sends, each request gets its own response', { timeout: FUZZ_MS }, async () => {
  const edge = await TestEdge.start();
  onTestFinished(() => edge.close());
  let planned: readonly Exchange[] = [];
  const upstream = createServer((socket) => {
    socket.on('error', () => {});
    let asked = '';
    socket.on('data', (bytes) => {
      asked += bytes;
      if (!asked.endsWith('\r\n\r\n')) return;
      const at = Number(/^\S+ \/(\d+) /.exec(asked)?.[1]);
      asked = '';
      answerTo(socket, planned[at] as Exchange);
    });
  });
  const policy = { on_http_response: [{ actions: [{ type: 'compress-response', config: {} }] }] };
  await edge.serveRaw('h', upstream, { policy });
  await fc.assert(
    fc.asyncProperty(fc.array(exchange, { minLength: 1, maxLength: 6 }), async (exchanges) => {
      planned = exchanges;
      const requests = exchanges.map(
        ({ method, version, headers, last }, at) =>
          `${method} /${at} HTTP/${version}\r\nHost: h\r\n${headers.join('')}${last}\r\n`,
      );
      const socket = edge.connect();
      socket.write(`${requests.join('')}GET / HTTP/1.1\r\nHost: unknown\r\nConnection: close\r\n\r\n`);
      let rest = await collect(socket);
      let isOpen = true;
      for (const one of exchanges) {
        const { status, isEncoded, body, complete, keepAlive, length } = read(rest, one.method);
        expect({ status, complete }).toEqual({ status: one.answer.status, complete: true });
        if (!isEncoded) expect(body).toBe(isBodyless(one) ? '' : one.answer.body);
        rest = rest.subarray(length);
        isOpen = keepAlive;
        if (!isOpen) break;
      }
      expect(isOpen ? read(rest, 'GET').status : rest.length).toBe(isOpen ? 404 : 0);
    }),
    fuzz(60),
  );
});

/** Parts of responses, right ones and such as devices send. */
const PARTS = [
  ...[
    'HTTP/1.1 200 OK\r\n',
    'HTTP/1.1 200 OK\n',
    'HTTP/1.0 200\r\n',
    'HTTP/1.1  999 X\r\n',
    'ICY 200 OK\n',
    '\r\n',
    '\n',
  ],
  ...['Content-Length: 5\r\n', 'Content-Length: 5, 5\n', 'Content-Length : 3\r\n', ' Content-Length: 9\r\n'],
  ...['Transfer-Encoding: chunked\r\n', 'Transfer-Encoding:\n chunked\n', 'Transfer-Encoding: identity\r\n'],
  ...[
    'X-A: 1\rX-B: 2\r\n',
    'X-A: a\n  b\n',
    'X(A): 1\n',
    'none\n',
    ': 1\r\n',
    'X-A: a\0\x01b\r\n',
    'Connection: close\n',
  ],
  ...['hello', '5\r\nhello\r\n', '5\nhello\n', '0\r\n\r\n', '0\n\n', '0\r\n', '5 ;x\n', 'HTTP/1.1 204 No\r\n\r\n'],
  ...['HTTP/1.1 103 Early\n\n', 'HTTP/1.1 404 Not\r\nContent-Length: 0\r\n\r\n'],
];

it('whatever an upstream sends, clients read one valid response, and the next one is theirs', {
  timeout: FUZZ_MS,
}, async () => {
  const edge = await TestEdge.start();
  onTestFinished(() => edge.close());
  let bytes = '';
  const upstream = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.end(bytes, 'latin1'));
  });
  await edge.serveRaw('h', upstream);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(...PARTS), { maxLength: 12 }), fc.boolean(), async (parts, begun) => {
      bytes = `${begun ? 'HTTP/1.1 200 OK\n' : ''}${parts.join('')}`;
      // Node's client, which parses strictly.
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      const failure = await ask(edge.httpPort, 'h', { agent }).then(
        () => null,
        ({ code }: NodeJS.ErrnoException) => code,
      );
      const next = await ask(edge.httpPort, 'unknown', { agent });
      agent.destroy();
      // The gateway resets the connection of a response that is incomplete.
      expect(failure === null || failure === 'ECONNRESET').toBe(true);
      expect([next.status, next.headers['ngrok-error-code']]).toEqual([404, 'ERR_NGROK_3200']);
    }),
    fuzz(150),
  );
});
