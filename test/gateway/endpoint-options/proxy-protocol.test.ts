import { Agent, createServer, type Server } from 'node:http';
import { type AddressInfo, createServer as createRawServer, type Socket } from 'node:net';
import type { Listener, Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { agentSession, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { ask } from '../../support/http-request.ts';
import { listening } from '../../support/loopback.ts';

let gateway: TestGateway;
let session: Session;
let http: Server;
/** Records the bytes before HTTP on each connection. */
const headers: Buffer[] = [];
const upstream = createRawServer((socket) => {
  socket.once('readable', () => {
    const bytes: Buffer = socket.read();
    const length = bytes[0] === 0x0d ? 16 + bytes.readUInt16BE(14) : bytes.indexOf('\r\n') + 2;
    headers.push(bytes.subarray(0, length));
    socket.unshift(bytes.subarray(length));
    http.emit('connection', socket);
  });
});

beforeAll(async () => {
  gateway = await startTestGateway();
  session = await agentSession(gateway).connect();
  http = createServer((req, res) => res.end(`${req.url}`));
  await listening(upstream);
});
beforeEach(() => {
  headers.length = 0;
});
afterAll(async () => {
  await session.close();
  await gateway.close();
  upstream.close();
});

async function bind(host: string, version: string): Promise<Listener> {
  const listener = await session.httpEndpoint().domain(host).scheme('HTTP').proxyProto(version).listen(false);
  listener.forward(`http://127.0.0.1:${(upstream.address() as AddressInfo).port}`).catch(() => {});
  return listener;
}

it('the PROXY header names the client to an HTTP upstream, and clients share no connection', async () => {
  await bind('v1.localhost', '1');
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  let local = 0;
  agent.on('free', (socket: Socket) => {
    local = socket.localPort ?? 0;
  });
  const asked = () => ask(gateway.httpPort, 'v1.localhost', { path: '/same', agent });
  expect((await asked()).body).toBe('/same');
  expect((await asked()).body).toBe('/same');
  const line = `PROXY TCP4 127.0.0.1 127.0.0.1 ${local} ${gateway.httpPort}\r\n`;
  expect(headers.map(String)).toEqual([line]);
  expect((await ask(gateway.httpPort, 'v1.localhost', { path: '/other' })).body).toBe('/other');
  expect(headers).toHaveLength(2);
  expect(String(headers[1])).toMatch(/^PROXY TCP4 127\.0\.0\.1 127\.0\.0\.1 \d+ \d+\r\n$/);
  expect(headers[1]).not.toEqual(headers[0]);
  agent.destroy();
});

it('the PROXY header supports version 2', async () => {
  await bind('v2.localhost', '2');
  expect((await ask(gateway.httpPort, 'v2.localhost', { path: '/x' })).body).toBe('/x');
  const [header = Buffer.alloc(0)] = headers;
  expect(header.subarray(0, 14).toString('latin1')).toBe('\r\n\r\n\0\r\nQUIT\n\x21\x11');
  expect([...header.subarray(16, 24)]).toEqual([127, 0, 0, 1, 127, 0, 0, 1]);
});
