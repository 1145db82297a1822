import { once } from 'node:events';
import { stat, writeFile } from 'node:fs/promises';
import http, { type RequestListener } from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it, onTestFinished } from 'vitest';
import { type Listen, startServer } from '../../../src/agent/api/server.ts';
import { OperatorError } from '../../../src/lib/errors.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/tunnel-set-up.ts';

const LOOPBACK: Listen = { host: '127.0.0.1', port: 0 };

async function start(app: RequestListener, listen: Listen = LOOPBACK) {
  const server = await startServer(app, listen, silentLog);
  onTestFinished(() => server.close(0).catch(() => {}));
  return server;
}

it('chooses a free port when asked to, and names it', async () => {
  const server = await start((_req, res) => res.end('hello'));
  expect(server.address).toBe(`127.0.0.1:${server.port}`);
  expect(await (await fetch(`http://${server.address}`)).text()).toBe('hello');
});

it('serves on a socket of its own, in the place of one left behind by a killed agent', async () => {
  const path = join(await temporaryFolder(), 'api.sock');
  await writeFile(path, '');
  const server = await start((_req, res) => res.end('hello'), { path });
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  const [response] = await once(http.get({ socketPath: path, path: '/', agent: false }), 'response');
  expect(await text(response)).toBe('hello');
  expect(server).toMatchObject({ address: path, port: null });
});

it('says what to do when the address is taken or not its own', async () => {
  const { port } = await start(() => {});
  await expect(startServer(() => {}, { host: '127.0.0.1', port: port ?? 0 }, silentLog)).rejects.toThrow(/AGENT_PORT/);
  await expect(startServer(() => {}, { host: '192.0.2.1', port: 0 }, silentLog)).rejects.toThrow(OperatorError);
});

it('answers what is under way when closed, and lets idle connections go', async () => {
  let arrived = () => {};
  const arrival = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  let finish = () => {};
  const server = await start((_req, res) => {
    finish = () => res.end('done');
    arrived();
  });
  const idle = net.connect(server.port ?? 0, '127.0.0.1');
  const answer = fetch(`http://${server.address}`).then((response) => response.text());
  await arrival;
  const closed = server.close(5_000);
  finish();
  expect(await answer).toBe('done');
  const began = performance.now();
  await closed;
  expect(performance.now() - began).toBeLessThan(1_000);
  idle.destroy();
});

it('cuts off what is still under way after the grace time', async () => {
  const server = await start(() => {});
  const request = http.get(`http://${server.address}`);
  const failed = once(request, 'error');
  await once(request, 'socket');
  await once(request, 'finish');
  const began = performance.now();
  await server.close(50);
  expect(performance.now() - began).toBeLessThan(2_000);
  await failed;
});

it('answers what is no request in the form of every error', async () => {
  const server = await start(() => {});
  const socket = net.connect(server.port ?? 0, '127.0.0.1');
  socket.write('nonsense\r\n\r\n');
  const answer = await text(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
  expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({
    error_code: 'ERR_AGENT_INVALID_REQUEST',
    status_code: 400,
  });
});

it('does not wait for ever for a client that dribbles its request', { timeout: 20_000 }, async () => {
  const server = await start(() => {});
  const socket = net.connect(server.port ?? 0, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ');
  const dribble = setInterval(() => socket.write('x'), 500);
  onTestFinished(() => clearInterval(dribble));
  expect(await text(socket)).toContain('ERR_HTTP_REQUEST_TIMEOUT');
});
