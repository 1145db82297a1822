import { createServer, METHODS, type Server } from 'node:http';
import { connect } from 'node:net';
import fc from 'fast-check';
import { expect, it, onTestFinished } from 'vitest';
import { endOfRequest } from '../gateway/edge/http/naive-reader.ts';
import { TestEdge } from '../support/edge.ts';
import { FUZZ_MS, fuzz } from '../support/fuzz.ts';
import { damaged } from './http-text.ts';
import { note, type Reading, readByEdge, readByNode, type Understood } from './request-readers.ts';
import { requestStream } from './request-streams.ts';

const streams = fc.oneof({ weight: 6, arbitrary: requestStream }, damaged(requestStream));

/** Lengths of the pieces in which a text is sent; the rest is one piece. */
const sizes = fc.array(fc.integer({ min: 1, max: 60 }), { maxLength: 6 });

function split(text: string, lengths: readonly number[]): string[] {
  const pieces: string[] = [];
  let rest = text;
  for (const length of lengths) {
    pieces.push(rest.slice(0, length));
    rest = rest.slice(length);
  }
  return [...pieces, rest].filter((piece) => piece !== '');
}

/** The first difference between two readers that both accept the input; null for none. */
function difference(ours: Reading, theirs: Reading): string | null {
  for (const [at, { trailers, body, ...head }] of ours.requests.entries()) {
    const other = theirs.requests[at];
    if (other === undefined) return theirs.over ? null : `request ${at} is missing in Node's`;
    const { trailers: theirTrailers, body: theirBody, ...theirHead } = other;
    if (JSON.stringify(head) !== JSON.stringify(theirHead)) return `the head of request ${at}`;
    if (body === theirBody && JSON.stringify(trailers) === JSON.stringify(theirTrailers)) continue;
    const isRefused = (ours.over && trailers === null) || (theirs.over && theirTrailers === null);
    return isRefused ? null : `the body of request ${at}`;
  }
  return ours.over || theirs.requests.length === ours.requests.length ? null : 'they see more requests';
}

it('the edge reads the same requests as Node, or rejects them', { timeout: FUZZ_MS }, async () => {
  let complete = 0;
  await fc.assert(
    fc.asyncProperty(streams, sizes, async ({ text }, lengths) => {
      const ours = await readByEdge(split(text, lengths));
      const theirs = await readByNode([text]);
      complete += ours.requests.filter(({ trailers }) => trailers !== null).length;
      expect([difference(ours, theirs), ours, theirs]).toEqual([null, ours, theirs]);
    }),
    fuzz(500),
  );
  expect(complete).toBeGreaterThan(100);
});

/** How long a client waits for another response; no comparison depends on it. */
const PATIENCE_MS = 200;
/** Saves most of them the wait. */
const LAST = 'GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n';

/** Sends a text, and closes the connection when nothing more arrives. */
function send(port: number, text: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket
      .on('error', () => {})
      .on('close', () => resolve())
      .setTimeout(PATIENCE_MS, () => socket.destroy())
      .resume()
      .write(text, 'latin1');
  });
}

/** The parts of requests that must not change. */
const outline = ({ method, target, rawHeaders, body }: Understood) =>
  JSON.stringify([method, target, rawHeaders.filter((_, at) => rawHeaders[at - (at % 2)] === 'X-A'), body]);

/** The requests on a connection to an upstream, to a reader that checks nothing. */
function naively(text: string): string[] {
  const end = endOfRequest(text);
  if (end === -1) return [];
  const [method = '', target = ''] = text.split(' ', 2);
  return [`${method} ${target}`, ...naively(text.slice(end))];
}

/** The requests as the upstream read them. */
interface Arrivals {
  requests: Understood[];
  /** As bytes. */
  connections: string[];
  faults: (string | undefined)[];
}

function upstreamServer(): { server: Server; arrivals: Arrivals } {
  const arrivals: Arrivals = { requests: [], connections: [], faults: [] };
  const { requests, connections, faults } = arrivals;
  const server = createServer((req, res) => note(requests, req, req, () => res.end('ok')));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    faults.push(error.code);
    socket.destroy();
  });
  server.on('connection', (socket) => {
    const at = connections.push('') - 1;
    socket.on('data', (bytes: Buffer) => {
      connections[at] += bytes.toString('latin1');
    });
  });
  return { server, arrivals };
}

/** Whether Node's error is more than an unknown method or version, or an incomplete request. */
const isForgery = (code = '') => /^HPE_(?!INVALID_METHOD|INVALID_VERSION|INVALID_EOF_STATE)/.test(code);

it('the upstream reads the same requests that Node reads, with any parser', {
  timeout: FUZZ_MS,
}, async () => {
  const edge = await TestEdge.start();
  onTestFinished(() => edge.close());
  let arrived = 0;
  await fc.assert(
    fc.asyncProperty(streams, async (stream) => {
      const text = stream.text + LAST;
      const { server, arrivals } = upstreamServer();
      const endpoint = await edge.serve('h', server);
      await send(edge.httpPort, text);
      edge.remove(endpoint);
      await new Promise((resolve) => server.close(resolve));
      const complete = arrivals.requests.filter(({ trailers }) => trailers !== null);
      arrived += complete.length;
      const { requests, over } = await readByNode([text]);
      // In order, without those that the edge answers itself; after a rejection Node reports nothing.
      let rest = requests.map(outline);
      for (const request of complete.map(outline)) {
        if (over && !rest.includes(request)) break;
        expect(rest).toContain(request);
        rest = rest.slice(rest.indexOf(request) + 1);
      }
      const carried = arrivals.connections
        .flatMap(naively)
        .filter((line) => METHODS.includes(line.split(' ')[0] ?? ''));
      expect(carried.sort()).toEqual(complete.map(({ method, target }) => `${method} ${target}`).sort());
      expect(arrivals.faults.filter(isForgery)).toEqual([]);
    }),
    fuzz(60),
  );
  expect(arrived).toBeGreaterThan(0);
});
