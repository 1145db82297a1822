import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import type { Listener, Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { collect, THROUGH_WRONG_NODE } from '../support/edge.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { ask } from '../support/http-request.ts';
import { askHttp2, openHttp2 } from '../support/http2-client.ts';
import { listening } from '../support/loopback.ts';

const LARGE = Buffer.alloc(8 * 1_048_576, 'payload ');
const HUGE = THROUGH_WRONG_NODE ? Buffer.alloc(256 * 1_048_576, 'payload ') : LARGE;

let gateway: TestGateway;
let session: Session;
let upstream: Server;

beforeAll(async () => {
  gateway = await startTestGateway();
  session = await agentSession(gateway).connect();
  upstream = createServer(async (req, res) => {
    if (req.url === '/upload') {
      const body = await collect(req);
      res.end(String(body.equals(body.length === LARGE.length ? LARGE : HUGE)));
    } else if (req.url === '/download') res.end(LARGE);
    else if (req.url === '/huge') res.end(HUGE);
    else if (req.url === '/break') res.writeHead(200, { 'content-length': 10 }).write('half', () => res.destroy());
    else res.end(`hello ${req.headers['x-forwarded-for']}`);
  });
  new WebSocketServer({ server: upstream }).on('connection', (socket) => {
    socket.on('message', (data) => socket.send(data));
  });
  await listening(upstream);
});
afterAll(async () => {
  await session.close();
  await gateway.close();
  upstream.closeAllConnections();
  upstream.close();
});

async function tunnel(
  domain: string,
  port = (upstream.address() as AddressInfo).port,
  policy?: object,
): Promise<Listener> {
  const builder = session.httpEndpoint().domain(domain).scheme('HTTP');
  if (policy) builder.trafficPolicy(JSON.stringify(policy));
  const listener = await builder.listen(false);
  listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
  return listener;
}

it('serves requests, large bodies both ways and websockets through the real SDK', async () => {
  await tunnel('cam.localhost');
  expect((await ask(gateway.httpPort, 'cam.localhost')).body).toBe('hello 127.0.0.1');
  expect((await ask(gateway.httpPort, 'cam.localhost', { path: '/huge' })).body.length).toBe(HUGE.length);
  expect((await ask(gateway.httpPort, 'cam.localhost', { path: '/upload', body: HUGE })).body).toBe('true');

  const socket = new WebSocket(`ws://127.0.0.1:${gateway.httpPort}/`, { headers: { host: 'cam.localhost' } });
  await once(socket, 'open');
  socket.send('ping');
  const [data] = (await once(socket, 'message')) as [Buffer];
  expect(String(data)).toBe('ping');
  socket.terminate();
});

it('keeps the agent connected when requests are rejected in the middle of their first packet', async () => {
  await tunnel('refused.localhost');
  const refused = async () => {
    const socket = connect(gateway.httpPort, '127.0.0.1');
    socket.write('POST / HTTP/1.1\r\nHost: refused.localhost\r\nTransfer-Encoding: chunked\r\n\r\nnone');
    return String(await collect(socket));
  };
  for (let times = 0; times < 5; times++) expect(await refused()).toMatch(/^HTTP\/1\.1 400 /);
  expect((await ask(gateway.httpPort, 'refused.localhost')).body).toBe('hello 127.0.0.1');
});

it('serves HTTP/2 clients, with large bodies both ways', async () => {
  const builder = session.httpEndpoint().domain('two.localhost');
  const listener = await builder.listen(false);
  listener.forward(`http://127.0.0.1:${(upstream.address() as AddressInfo).port}`).catch(() => {});
  const { httpsPort, sessionCa } = gateway;
  const client = await openHttp2({ httpsPort, ca: { caPem: sessionCa } }, 'two.localhost');
  const [download, upload, small] = await Promise.all([
    askHttp2(client, { ':path': '/download' }),
    askHttp2(client, { ':method': 'POST', ':path': '/upload' }, LARGE),
    askHttp2(client, {}),
  ]);
  client.destroy();
  expect([download.body.length, upload.body, small.body]).toEqual([LARGE.length, 'true', 'hello 127.0.0.1']);
});

it('shows an aborted response as incomplete', async () => {
  await tunnel('broken.localhost');
  const answer = await ask(gateway.httpPort, 'broken.localhost', { path: '/break' });
  expect([answer.body, answer.complete]).toEqual(['half', false]);
});

it('answers with its own error when the upstream is unreachable, also to HEAD', async () => {
  const closed = createServer();
  const port = await listening(closed);
  closed.close();
  await once(closed, 'close');
  await tunnel('dead.localhost', port);
  for (const method of ['GET', 'HEAD', 'POST']) {
    const answer = await ask(gateway.httpPort, 'dead.localhost', { method });
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012']);
  }
});
