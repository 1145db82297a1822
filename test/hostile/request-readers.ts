import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { clientMemory } from '../../src/gateway/edge/clients/client-memory.ts';
import { HttpClients } from '../../src/gateway/edge/clients/http-clients.ts';
import type { ClientRequest, ClientResponse } from '../../src/gateway/edge/http/client-message.ts';
import { HTTP_LIMITS } from '../../src/gateway/edge/http/http-limits.ts';
import { faultOf } from '../../src/gateway/edge/routing.ts';
import { EdgeCounters } from '../../src/gateway/metrics/edge-counters.ts';
import { silentLog } from '../support/silent-log.ts';

/** A request as a server has read it. */
export interface Understood {
  method: string;
  target: string;
  version: string;
  rawHeaders: string[];
  body: string;
  /** Null until the request is complete. */
  trailers: string[] | null;
}

/** Everything that a server has read from a connection. */
export interface Reading {
  requests: Understood[];
  /** Whether the server ended the connection: it rejected a request, or answered the last one. */
  over: boolean;
}

/** A connection without a network. */
class Wire extends Duplex {
  constructor() {
    super({ allowHalfOpen: true });
  }
  override _read(): void {}
  override _write(_bytes: Buffer, _encoding: string, done: () => void): void {
    done();
  }
  setTimeout(): this {
    return this;
  }
}

/** Records a request, and answers it once complete. */
export function note(
  requests: Understood[],
  req: ClientRequest | IncomingMessage,
  body: ClientRequest['body'],
  answer: () => void,
): void {
  const { method = '', url = '', httpVersion, rawHeaders } = req;
  const understood: Understood = { method, target: url, version: httpVersion, rawHeaders, body: '', trailers: null };
  requests.push(understood);
  const finish = () => {
    understood.trailers = req.rawTrailers;
    answer();
  };
  if (body === null) finish();
  else {
    body.on('data', (piece: Buffer) => {
      understood.body += piece.toString('latin1');
    });
    body.on('end', finish).on('error', () => {});
  }
}

/** Idle turns of the event loop before the input counts as processed; each request and response takes a few. */
const TURNS = 20;

async function feed(reading: Reading, wire: Wire, pieces: readonly string[]): Promise<Reading> {
  for (const piece of pieces) {
    if (wire.destroyed) break;
    wire.push(Buffer.from(piece, 'latin1'));
    await nextTurn();
  }
  for (let turn = 0; turn < TURNS; turn++) await nextTurn();
  reading.over ||= wire.destroyed || wire.writableEnded;
  wire.destroy();
  return reading;
}

const PARTS = { limits: HTTP_LIMITS, memory: clientMemory(), counters: new EdgeCounters(), log: silentLog };

/** The requests that the edge reads from bytes in these pieces. */
export function readByEdge(pieces: readonly string[]): Promise<Reading> {
  const reading: Reading = { requests: [], over: false };
  const wire = new Wire();
  const onRequest = (req: ClientRequest, res: ClientResponse) => {
    if (faultOf(req) !== null) {
      wire.destroy();
      return;
    }
    note(reading.requests, req, req.body, () => {
      res.writeHead(204, []);
      res.end();
    });
  };
  new HttpClients({ ...PARTS, handler: { onRequest } }).accept(wire as unknown as Socket);
  return feed(reading, wire, pieces);
}

/** The requests that Node's strict parser reads. */
export function readByNode(pieces: readonly string[]): Promise<Reading> {
  const reading: Reading = { requests: [], over: false };
  const wire = new Wire();
  const server = createServer({ insecureHTTPParser: false, requireHostHeader: false });
  const onRequest = (req: IncomingMessage, res: ServerResponse) =>
    note(reading.requests, req, req, () => res.writeHead(204).end());
  server.on('request', onRequest).on('checkContinue', onRequest).on('checkExpectation', onRequest);
  // Bytes before the end are still unread.
  server.on('clientError', () => {
    reading.over = true;
  });
  server.emit('connection', wire);
  return feed(reading, wire, pieces);
}
