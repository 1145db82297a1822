import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import net, { type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import { expect, it } from 'vitest';
import { connectUpstream } from '../../../src/agent/upstreams/connect-upstream.ts';
import { checkHttp } from '../../../src/agent/upstreams/upstream-check.ts';
import { UpstreamGuard } from '../../../src/agent/upstreams/upstream-guard.ts';
import { parseUpstream } from '../../../src/lib/network/upstream-address.ts';
import { parseUpstreamRules } from '../../../src/settings/upstream-rules.ts';
import { serving } from '../../support/loopback.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

async function check(server: Server, privateFile = '/nowhere/tunnels.json', connectMs = 1_000) {
  const port = await serving(server);
  const guard = new UpstreamGuard(parseUpstreamRules('loopback'));
  const options = { guard, verifyTls: true, connectMs, privateFile };
  const upstream = parseUpstream(`127.0.0.1:${port}`);
  const { problem, exposedPath } = await checkHttp(await connectUpstream(upstream, options), upstream, options);
  return { problem: problem?.replace(String(port), 'PORT') ?? null, exposedPath };
}

const says = (text: string) => (socket: Socket) => void socket.on('error', () => {}).end(text);
const TLS = 'answers with TLS: forward to https://127.0.0.1:PORT';
const OTHERWISE = ': forward to an HTTP server, or use a tcp tunnel';

it.each<[string, () => Server | Promise<Server>, string | null]>([
  ['an HTTP server', () => createServer((_, res) => void res.end('hello')), null],
  ['a server that rejects OPTIONS', () => net.createServer(says('HTTP/1.1 400 Bad Request\r\n\r\n')), null],
  ['a radio station', () => net.createServer(says('ICY 200 OK\r\n\r\n')), null],
  ['a device that spells it otherwise', () => net.createServer(says('\r\nhttp/1.1 200 OK\r\n\r\n')), null],
  ['a server that says nothing', () => net.createServer((socket) => void socket.resume()), null],
  ['a TLS server', async () => tls.createServer(await selfSigned('camera.local')), TLS],
  ['an SSH server', () => net.createServer(says('SSH-2.0-OpenSSH_9.2\r\n')), `answers with SSH${OTHERWISE}`],
  [
    'another server',
    () => net.createServer(says('220 ready\r\n')),
    `answers with another protocol than HTTP${OTHERWISE}`,
  ],
  [
    'a server that resets connections',
    () => net.createServer((socket) => void socket.once('data', () => socket.resetAndDestroy())),
    `closes connections without an answer to HTTP${OTHERWISE}`,
  ],
])('a check of %s tells whether HTTP requests work there', async (_, start, problem) => {
  expect((await check(await start())).problem).toBe(problem);
});

/** A device that answers GET only. */
const device = (otherwise: (socket: Socket, asked: string) => void, requests: string[] = []) =>
  net.createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', (bytes) => {
      const [asked = ''] = String(bytes).split(' HTTP/');
      requests.push(asked);
      if (asked === 'GET /') socket.end('HTTP/1.0 200 OK\r\n\r\nhello');
      else otherwise(socket, asked);
    });
  });

it.each<[string, (socket: Socket, asked: string) => void, string[], string | undefined]>([
  ['closes the connection on', (socket) => void socket.end(), ['OPTIONS *', 'GET /'], 'GET'],
  ['resets the connection on', (socket) => void socket.resetAndDestroy(), ['OPTIONS *', 'GET /'], 'GET'],
  ['answers nonsense to', (socket) => void socket.end('?\r\n'), ['OPTIONS *', 'GET /'], 'GET'],
  ['hangs on', () => {}, ['OPTIONS *'], 'GET'],
])('a device that %s OPTIONS is asked by GET, and the next time at once', async (_, otherwise, asked, probe) => {
  const requests: string[] = [];
  const port = await serving(device(otherwise, requests));
  const guard = new UpstreamGuard(parseUpstreamRules('loopback'));
  const options = { guard, verifyTls: true, connectMs: 1_000, privateFile: '/nowhere/tunnels.json' };
  const upstream = parseUpstream(`127.0.0.1:${port}`);
  const findings = await checkHttp(await connectUpstream(upstream, options), upstream, options);
  expect(findings).toEqual({ problem: null, exposedPath: null, probe });
  expect(requests.slice(0, asked.length)).toEqual(asked);
  expect(requests.filter((request) => /^(?:OPTIONS|HEAD) /.test(request))).toHaveLength(1);
});

it('a device that takes one connection at a time, and closes it on OPTIONS, is not judged', async () => {
  const once = device((socket) => void socket.end());
  once.on('connection', () => once.close());
  expect((await check(once)).problem).toBeNull();
});

it('a device that keeps connections open is not kept waiting for', async () => {
  const file = join(temporaryFolder(), 'tunnels.json');
  writeFileSync(file, '{"version":1}\n');
  const keepsOpen = net.createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  });
  // A wait would outlast the test.
  expect(await check(keepsOpen, file, 600_000)).toEqual({ problem: null, exposedPath: null });
});

it('a TLS server that answers plain requests with 400, as nginx does, is recognised', async () => {
  const { key, cert } = await selfSigned('camera.local');
  const secure = tls.createServer({ key, cert });
  const server = net.createServer((socket) => {
    socket.once('readable', () => {
      const start = socket.read() as Buffer | null;
      if (start?.[0] === 0x16) {
        socket.unshift(start);
        secure.emit('connection', socket);
      } else socket.end('HTTP/1.1 400 Bad Request\r\n\r\nThe plain HTTP request was sent to HTTPS port');
    });
  });
  expect((await check(server)).problem).toBe(TLS);
});

it('a server that was started above the data folder is recognised, one that answers every path with a page is not', async () => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'my agent/data'), { recursive: true });
  const file = join(folder, 'my agent/data/tunnels.json');
  writeFileSync(file, '{"version":1,"tunnels":[]}\n');
  const files = createServer((req, res) => {
    try {
      res.end(readFileSync(join(folder, decodeURIComponent(req.url ?? ''))));
    } catch {
      res.writeHead(404).end();
    }
  });
  expect(await check(files, file)).toEqual({ problem: null, exposedPath: '/my%20agent/data/' });
  const page = createServer((_, res) => void res.end('<!doctype html>'));
  expect(await check(page, file)).toEqual({ problem: null, exposedPath: null });
});
