import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { stat, writeFile } from 'node:fs/promises';
import http, { type RequestListener } from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { hasContainerNetwork, type Listen, type ServerLimits, startServer } from '../../../src/agent/api/server.ts';
import { OperatorError } from '../../../src/lib/errors.ts';
import { setUpApi } from '../../support/api-set-up.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { settle, until } from '../../support/until.ts';

const LOOPBACK: Listen = { host: '127.0.0.1', port: 0 };

async function start(app: RequestListener, listen: Listen = LOOPBACK, limits?: ServerLimits) {
  const server = await startServer(app, listen, silentLog, limits);
  onTestFinished(() => server.close(0).catch(() => {}));
  return server;
}

it('port 0 chooses a free port and returns it', async () => {
  const server = await start((_req, res) => res.end('hello'));
  expect(server.address).toBe(`127.0.0.1:${server.port}`);
  expect(await (await fetch(`http://${server.address}`)).text()).toBe('hello');
});

it('a unix socket replaces one that a killed agent left', async () => {
  const path = join(temporaryFolder(), 'api.sock');
  await writeFile(path, '');
  const server = await start((_req, res) => res.end('hello'), { path });
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  const [response] = await once(http.get({ socketPath: path, path: '/', agent: false }), 'response');
  expect(await text(response)).toBe('hello');
  expect(server).toMatchObject({ address: path, port: null });
});

it('an address in use or of another machine is an error that names the setting', async () => {
  const { port } = await start(() => {});
  await expect(startServer(() => {}, { host: '127.0.0.1', port: port ?? 0 }, silentLog)).rejects.toThrow(/AGENT_PORT/);
  await expect(startServer(() => {}, { host: '192.0.2.1', port: 0 }, silentLog)).rejects.toThrow(OperatorError);
});

it('a unix socket that cannot be created is an error that names the folder of temporary files, not a port', async () => {
  const path = join(temporaryFolder(), 'missing', 'api.sock');
  const failed = startServer(() => {}, { path }, silentLog);
  await expect(failed).rejects.toThrow(/^API cannot listen on .*api\.sock: .*; set TMPDIR/);
});

it('close() answers pending requests and closes idle connections', async () => {
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
  const closed = server.close(40_000);
  finish();
  expect(await answer).toBe('done');
  const began = performance.now();
  await closed;
  expect(performance.now() - began).toBeLessThan(20_000);
  idle.destroy();
});

it('close() aborts pending requests after the grace time', async () => {
  const server = await start(() => {});
  const request = http.get(`http://${server.address}`);
  const failed = once(request, 'error');
  await once(request, 'socket');
  await once(request, 'finish');
  await server.close(50);
  await failed;
});

it('a malformed request gets an error body', async () => {
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

it('a request without a Host header gets an error body', async () => {
  const server = await start((await setUpApi()).local);
  const socket = net.connect(server.port ?? 0, '127.0.0.1');
  socket.write('GET /tunnels HTTP/1.1\r\nConnection: close\r\n\r\n');
  const answer = await text(socket);
  expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({
    error_code: 'ERR_AGENT_INVALID_REQUEST',
    status_code: 400,
  });
});

it('a request with a malformed body gets one answer only', async () => {
  const server = await start((_req, res) => res.writeHead(403).end('no'));
  const socket = net.connect(server.port ?? 0, '127.0.0.1');
  socket.write('POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n');
  expect((await text(socket)).match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 403']);
});

it('a request with extra bytes is answered, and its connection closed', async () => {
  const server = await start((_req, res) => setTimeout(() => res.end('hello'), 20));
  const socket = net.connect(server.port ?? 0, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nand more');
  expect((await text(socket)).match(/HTTP\/1\.1 \d+|hello/g)).toEqual(['HTTP/1.1 200', 'hello']);
});

it('an unknown Expect header is ignored', async () => {
  const server = await start((_req, res) => res.end('hello'));
  const socket = net.connect(server.port ?? 0, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nExpect: wonders\r\nConnection: close\r\n\r\n');
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 .*hello$/s);
});

/** Resolves when the socket closes, in whatever way. */
const closing = (socket: net.Socket) => new Promise((resolve) => socket.once('close', resolve));

it('CONNECT is answered with 400, after the answer to the request before it', async () => {
  const server = await start((_req, res) => setTimeout(() => res.end('hello'), 10));
  const asked = async (before: string): Promise<string> => {
    const socket = net.connect(server.port ?? 0, '127.0.0.1');
    socket.write(`${before}CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\ntunnelled`);
    return text(socket);
  };
  const refused = /HTTP\/1\.1 400 .*Connection: close\r\n.*\{"error_code":"ERR_AGENT_INVALID_REQUEST".*CONNECT.*\}\n$/s;
  expect(await asked('')).toMatch(refused);
  const both = await asked('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  expect(both).toMatch(/^HTTP\/1\.1 200 .*hello/s);
  expect(both).toMatch(refused);
});

describe('a slow client', () => {
  const limits = { headersMs: 200, requestMs: 400, idleMs: 10_000, checkMs: 50, connections: 3 };
  const app: RequestListener = (req, res) => req.resume().on('end', () => res.end('hello'));

  it.each([
    ['its headers', 'GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: '],
    ['its body', 'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n'],
    ['the chunks of its body', 'POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n'],
  ])('that sends %s slowly is timed out', async (_, beginning) => {
    const server = await start(app, LOOPBACK, limits);
    let answer = '';
    const socket = net.connect(server.port ?? 0, '127.0.0.1');
    // Writing fails after the server has closed the connection.
    socket
      .on('error', () => {})
      .on('data', (bytes) => {
        answer += bytes;
      });
    socket.write(beginning);
    const dribble = setInterval(() => socket.write('x'), 20);
    onTestFinished(() => clearInterval(dribble));
    await closing(socket);
    expect(answer).toContain('the request did not arrive in time');
  });

  it('does not delay others, and connections are limited', async () => {
    const server = await start(app, LOOPBACK, { ...limits, headersMs: 60_000, requestMs: 60_000 });
    const slow = [0, 1, 2].map(() => net.connect(server.port ?? 0, '127.0.0.1'));
    for (const socket of slow) {
      await once(socket, 'connect');
      socket.write('GET / HTTP/1.1\r\n');
    }
    const refused = net.connect(server.port ?? 0, '127.0.0.1').on('error', () => {});
    await closing(refused);
    slow[0]?.destroy();
    // The server may still count the closed connection for a moment.
    const answered = async () => {
      const [response] = await once(http.get(`http://${server.address}`, { agent: false }), 'response');
      return response.statusCode;
    };
    await expect.poll(() => answered().catch(() => 'refused')).toBe(200);
    for (const socket of slow) socket.destroy();
  });
});

it.each([
  ['a container with a network of its own', ['.dockerenv'], ['lo', 'eth0'], true],
  ['a container of Podman', ['run/.containerenv'], ['lo', 'eth0'], true],
  ['a container with the network of its host', ['.dockerenv'], ['lo', 'eth0/device', 'docker0'], false],
  ['a device with one network card', [], ['lo', 'wlan0/device'], false],
  ['a machine that only has virtual cards', [], ['lo', 'eth0'], false],
])('hasContainerNetwork of %s', (_what, marks, interfaces, expected) => {
  const root = temporaryFolder();
  mkdirSync(join(root, 'run'));
  for (const mark of marks) writeFileSync(join(root, mark), '');
  for (const name of interfaces) mkdirSync(join(root, 'sys/class/net', name), { recursive: true });
  expect(hasContainerNetwork(root)).toBe(expected);
});

it('requests that a client sends ahead wait for their turn, and too many end its connection', async () => {
  const held: http.ServerResponse[] = [];
  const server = await start((_req, res) => void held.push(res));
  const send = (count: number) => {
    const socket = net.connect(server.port ?? 0, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void socket.destroy());
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(count));
    return socket;
  };
  const two = send(2);
  for (const answer of ['first', 'second']) {
    await until(() => held.length > 0, 'a request');
    // The next one would be here by now.
    await settle();
    expect(held).toHaveLength(1);
    held.pop()?.end(answer);
    await until(() => two.readableLength > 0 || held.length > 0, 'the answer');
  }
  let answers = '';
  for await (const bytes of two) {
    answers += String(bytes);
    if (/first[\s\S]*second/.test(answers)) break;
  }
  await once(send(100), 'close');
  expect(held).toHaveLength(1);
});
