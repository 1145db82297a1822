import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Http1Clients } from '../../../../../src/gateway/edge/clients/http1/http1-clients.ts';
import type { ClientRequest, ClientResponse } from '../../../../../src/gateway/edge/http/client-message.ts';
import { HTTP_LIMITS } from '../../../../../src/gateway/edge/http/http-limits.ts';
import { TrafficCounters } from '../../../../../src/gateway/metrics/traffic-counters.ts';
import { collect } from '../../../../support/edge.ts';
import { silentLog } from '../../../../support/silent-log.ts';

type OnRequest = (req: ClientRequest, res: ClientResponse) => void;

/** A client's connection whose requests are answered at once; it reads nothing yet. */
async function enter(onRequest: OnRequest, httpLimits = {}): Promise<Socket> {
  const limits = { ...HTTP_LIMITS, ...httpLimits };
  const clients = new Http1Clients({ limits, counters: new TrafficCounters(), log: silentLog });
  const server = createServer({ allowHalfOpen: true }, (socket) => clients.accept(socket, { onRequest }));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {});
  onTestFinished(() => {
    socket.destroy();
    server.close();
  });
  return socket.pause();
}

const GET = 'GET / HTTP/1.1\r\nHost: h\r\n\r\n';
const LAST = 'GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n';
const CHUNKED = 'POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n';

const sayNo: OnRequest = (_req, res) => {
  res.writeHead(403, ['content-length', '0']);
  res.end();
};

/** More than systems buffer for a client that does not read. */
const SIZE = 16 * 1_048_576;
const BODY = Buffer.alloc(SIZE);

function answer(_req: ClientRequest, res: ClientResponse): void {
  res.writeHead(200, ['content-length', String(SIZE)]);
  res.end(BODY);
}

const bodySize = async (socket: Socket) => {
  const bytes = await collect(socket);
  return bytes.length - bytes.indexOf('\r\n\r\n') - 4;
};

describe('a slow client gets the whole response', () => {
  it.each<[string, string, object]>([
    ['when it is the last', LAST, {}],
    ['when the client takes longer than the connection would be kept', GET, { keepAliveTimeout: 100 }],
    ['when what follows is no HTTP', `${CHUNKED}none`, {}],
  ])('%s', async (_when, bytes, limits) => {
    const socket = await enter(answer, limits);
    socket.write(bytes);
    await once(socket, 'readable');
    await wait(1500);
    expect(await bodySize(socket)).toBe(SIZE);
  });

  it('when the client half-closes the connection', async () => {
    const socket = await enter(answer);
    socket.end(LAST);
    await once(socket, 'readable');
    expect(await bodySize(socket)).toBe(SIZE);
  });
});

it('an immediate response does not start the next pipelined request early', async () => {
  let served = 0;
  const socket = await enter((req, res) => {
    served += 1;
    answer(req, res);
  });
  socket.write(GET.repeat(4) + LAST);
  await once(socket, 'readable');
  expect(served).toBe(1);
  expect((await collect(socket)).length).toBeGreaterThan(5 * SIZE);
  expect(served).toBe(5);
});

it('a stalled response without a length does not look complete', async () => {
  const socket = await enter(
    (_req, res) => {
      res.writeHead(200, []);
      res.write(Buffer.from('part'));
    },
    { idleTimeout: 500 },
  );
  socket.write('GET / HTTP/1.0\r\nHost: h\r\n\r\n');
  const broken = once(socket, 'error');
  socket.resume();
  await broken;
  expect(socket.readableEnded).toBe(false);
});

describe('an idle connection is closed', () => {
  const never: OnRequest = (req) => req.body?.resume();

  it.each<[string, string, OnRequest]>([
    ['within a body', 'POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na', never],
    ['within a chunk', `${CHUNKED}5\r\na`, never],
    ['before the response', GET, never],
    ['within an unread body', `${CHUNKED}5\r\na`, sayNo],
    [
      'after another protocol was agreed on',
      GET.replace('\r\n\r\n', '\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n'),
      (req) => void req.upgrade?.accept().resume(),
    ],
  ])('%s', async (_when, bytes, onRequest) => {
    const socket = await enter(onRequest, { idleTimeout: 100 });
    socket.write(bytes);
    await collect(socket);
  });
});

it('an empty line after a body does not start a request', async () => {
  const socket = await enter(
    (_req, res) => {
      res.writeHead(204, []);
      res.end();
    },
    { headersTimeout: 600, keepAliveTimeout: 1200 },
  );
  socket.write('POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\r\n');
  expect(String(await collect(socket)).match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 204']);
});
