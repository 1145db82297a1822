import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { clientMemory } from '../../../../../src/gateway/edge/clients/client-memory.ts';
import { HttpClients } from '../../../../../src/gateway/edge/clients/http-clients.ts';
import type { ClientRequest, ClientResponse } from '../../../../../src/gateway/edge/http/client-message.ts';
import { HTTP_LIMITS } from '../../../../../src/gateway/edge/http/http-limits.ts';
import { EdgeCounters } from '../../../../../src/gateway/metrics/edge-counters.ts';
import { collect } from '../../../../support/edge.ts';
import { listening } from '../../../../support/loopback.ts';
import { silentLog } from '../../../../support/silent-log.ts';

type OnRequest = (req: ClientRequest, res: ClientResponse) => void;

/** A client's connection whose requests are answered at once; it reads nothing yet. */
async function enter(onRequest: OnRequest, httpLimits = {}): Promise<Socket> {
  const limits = { ...HTTP_LIMITS, ...httpLimits };
  const clients = new HttpClients({
    limits,
    handler: { onRequest },
    memory: clientMemory(),
    counters: new EdgeCounters(),
    log: silentLog,
  });
  const server = createServer({ allowHalfOpen: true }, (socket) => clients.accept(socket));
  const port = await listening(server);
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

it('a client gets a response that closes the connection when it only reads after it has sent its whole request', async () => {
  const socket = await enter(sayNo);
  const pieces = 15;
  socket.write(`POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: ${pieces}\r\n\r\n`);
  for (let sent = 0; sent < pieces; sent++) {
    await wait(100);
    socket.write('x');
  }
  expect(String(await collect(socket))).toMatch(/^HTTP\/1\.1 403 /);
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

describe('a client that is waited for is disconnected when it stops or trickles', () => {
  const read: OnRequest = (req) => req.body?.resume();
  const post = (headers: string, body = 'a') => `POST / HTTP/1.1\r\nHost: h\r\n${headers}\r\n\r\n${body}`;

  it.each<[string, string, OnRequest, RegExp]>([
    ['within a body', post('Content-Length: 100000'), read, /^HTTP\/1\.1 408 /],
    ['within a chunked body', post('Transfer-Encoding: chunked', 'fffff\r\na'), read, /^HTTP\/1\.1 408 /],
    ['within a body after its response', post('Content-Length: 100000'), sayNo, /^HTTP\/1\.1 403 /],
    [
      'within a body that it was asked for',
      post('Content-Length: 100000\r\nExpect: 100-continue', ''),
      (req, res) => {
        res.writeInterim(100, []);
        read(req, res);
      },
      /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 408 /,
    ],
    ['behind a request without a response', GET + 'a'.repeat(20_000), () => {}, /^$/],
  ])('%s', async (_where, bytes, onRequest, answered) => {
    const socket = await enter(onRequest, { progressTimeout: 200 });
    socket.write(bytes);
    const trickle = setInterval(() => socket.write('a'), 50);
    onTestFinished(() => clearInterval(trickle));
    expect(String(await collect(socket))).toMatch(answered);
  });
});

describe('a client that is not waited for stays connected', () => {
  it.each<[string, string, OnRequest]>([
    ['while its upstream does not read the body', 'POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\na', () => {}],
    [
      'while it has not been asked for the body',
      'POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n',
      (req) => req.body?.resume(),
    ],
    [
      'while both sides may speak at any time',
      CHUNKED,
      (req, res) => {
        req.body?.resume();
        res.writeHead(200, []);
        res.write(Buffer.from('first'));
      },
    ],
  ])('%s', async (_when, bytes, onRequest) => {
    let finish = () => {};
    const socket = await enter(
      (req, res) => {
        onRequest(req, res);
        finish = () => {
          if (!res.headersSent) res.writeHead(200, []);
          res.end(Buffer.from('last'));
        };
      },
      { progressTimeout: 100 },
    );
    socket.write(bytes);
    await wait(400);
    finish();
    const [answered] = (await once(socket.resume(), 'data')) as [Buffer];
    expect(String(answered)).toContain('last');
  });
});

it('bytes behind a request do not hide that the client leaves', async () => {
  let closed: Promise<unknown> | undefined;
  const asked = new Promise<void>((resolve) => {
    void enter((_req, res) => {
      closed = new Promise((done) => res.once('close', () => done('closed')));
      resolve();
    }).then((socket) => {
      socket.write(`${GET}${GET}`);
      void asked.then(() => socket.destroy());
    });
  });
  await asked;
  expect(await closed).toBe('closed');
});

it('pipelined requests leave turns to other connections', async () => {
  const turns = new Set<number>();
  let turn = 0;
  const count = () => {
    turn += 1;
    ticking = setImmediate(count);
  };
  let ticking = setImmediate(count);
  onTestFinished(() => clearImmediate(ticking));
  const socket = await enter((req, res) => {
    turns.add(turn);
    sayNo(req, res);
  });
  socket.write(GET.repeat(99) + LAST);
  expect(String(await collect(socket)).match(/HTTP\/1\.1 403/g)).toHaveLength(100);
  expect(turns.size).toBeGreaterThan(20);
});

it('fifty connections that pipeline requests leave turns to another client', async () => {
  let served = 0;
  let servedBefore = Number.NaN;
  const other = await enter((req, res) => {
    servedBefore = served;
    sayNo(req, res);
  });
  await once(other, 'connect');
  const crowd = Array.from({ length: 50 }, () =>
    enter((req, res) => {
      // Others have begun.
      if (served === 400) other.write(LAST);
      served += 1;
      sayNo(req, res);
    }),
  );
  const answers = (await Promise.all(crowd)).map((socket) => {
    socket.write(GET.repeat(39) + LAST);
    return collect(socket);
  });
  await collect(other);
  await Promise.all(answers);
  expect(served).toBe(2000);
  expect(servedBefore).toBeLessThan(1500);
});

it.each([
  ['heads', 'GET / HTTP/1.1\r\nX: '],
  ['requests behind others', `${GET}X: `],
  ['bodies', 'POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n'],
])('clients with large unread %s cannot use up the memory', async (_what, begin) => {
  const options = { limits: HTTP_LIMITS, handler: { onRequest: () => {} }, memory: clientMemory(8 * 1_048_576) };
  const clients = new HttpClients({ ...options, counters: new EdgeCounters(), log: silentLog });
  const server = createServer((socket) => clients.accept(socket));
  const port = await listening(server);
  let closed = 0;
  const sockets = Array.from({ length: 400 }, () => {
    const socket = connect(port, '127.0.0.1').on('error', () => {});
    socket.on('close', () => {
      closed += 1;
    });
    socket.resume().write(begin + 'a'.repeat(63_000));
    return socket;
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await expect.poll(() => closed).toBeGreaterThan(100);
});
