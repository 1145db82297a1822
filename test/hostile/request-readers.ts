import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Http1Clients } from '../../src/gateway/edge/clients/http1/http1-clients.ts';
import type { ClientRequest, ClientResponse } from '../../src/gateway/edge/http/client-message.ts';
import { HTTP_LIMITS } from '../../src/gateway/edge/http/http-limits.ts';
import { faultOf } from '../../src/gateway/edge/http/request-guard.ts';
import { TrafficCounters } from '../../src/gateway/metrics/traffic-counters.ts';
import { silentLog } from '../support/silent-log.ts';

/** A request as a server has understood it. */
export interface Understood {
  method: string;
  target: string;
  version: string;
  rawHeaders: string[];
  body: string;
  /** Null until the request is complete. */
  trailers: string[] | null;
}

/** What a server has made of a connection. */
export interface Reading {
  requests: Understood[];
  /** Whether the connection came to an end by the server's will: it refused something, or took it for the last. */
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

/** Writes a request down, and has it answered once it is complete. */
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

/** Turns of the event loop in which nothing more comes of what was sent: each request and response takes a few. */
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

const clients = new Http1Clients({ limits: HTTP_LIMITS, counters: new TrafficCounters(), log: silentLog });

/** What the edge takes for requests when bytes come in these pieces. */
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
  clients.accept(wire as unknown as Socket, { onRequest });
  return feed(reading, wire, pieces);
}

/** What Node's strict parser takes for requests. */
export function readByNode(pieces: readonly string[]): Promise<Reading> {
  const reading: Reading = { requests: [], over: false };
  const wire = new Wire();
  const server = createServer({ insecureHTTPParser: false, requireHostHeader: false });
  const onRequest = (req: IncomingMessage, res: ServerResponse) =>
    note(reading.requests, req, req, () => res.writeHead(204).end());
  server.on('request', onRequest).on('checkContinue', onRequest).on('checkExpectation', onRequest);
  // What came before it is still to be read.
  server.on('clientError', () => {
    reading.over = true;
  });
  server.emit('connection', wire);
  return feed(reading, wire, pieces);
}
