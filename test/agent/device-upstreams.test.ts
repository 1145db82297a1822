import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { agentSettings, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { freePort, serving } from '../support/loopback.ts';
import { NO_IPV6, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.close());

const HELLO = 'HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello';

/** A small server: what it does with the requests that it does not know. */
function device(knows: (request: string) => boolean, otherwise: (socket: Socket) => void): Server {
  return createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      if (knows(String(bytes))) socket.end(HELLO);
      else otherwise(socket);
    });
  });
}
const isGet = (request: string) => request.startsWith('GET / ');

/** A web server that says where it listens. */
async function serveAt(host: string, port: number) {
  const server = createHttpServer((_req, res) => void res.end(host));
  const close = async () => {
    if (!server.listening) return;
    server.closeAllConnections();
    await once(server.close(), 'close');
  };
  onTestFinished(close);
  await once(server.listen(port, host), 'listening');
  return close;
}

const get = async (domain: string) => (await getPublic(gateway, `https://${domain}`)).body;

describe.each(CONNECTORS)('with the %s connector', (connector) => {
  async function start() {
    const env = { ...agentSettings(gateway), AGENT_CONNECTOR: connector };
    const api = await AgentProcess.inTest(temporaryFolder(), env).ready();
    const add = async (name: string, forwards_to: string | number, protocol = 'http') => {
      const domain = `${name}-${connector}.localhost`;
      const response = await fetch(`${api}/tunnels`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ protocol, forwards_to, domain }),
      });
      const { notice, msg } = (await response.json()) as { notice?: string; msg?: string };
      expect([response.status, msg]).toEqual([200, undefined]);
      const shown = async () => {
        const answer = await fetch(`${api}/tunnels/${domain.split('.')[0]}`);
        const { status, upstream } = (await answer.json()) as { status: string; upstream: { state: string } };
        return `${status}, ${upstream.state}`;
      };
      return { domain, notice, shown };
    };
    return { add };
  }

  /** An agent with one tunnel. */
  const open = async (name: string, forwards_to: string | number) => (await start()).add(name, forwards_to);

  it.each<[string, Server]>([
    ['closes', device(isGet, (socket) => void socket.end())],
    ['resets', device(isGet, (socket) => void socket.resetAndDestroy())],
    ['nonsense', device(isGet, (socket) => void socket.end('404 Not found\r\n'))],
    ['hangs', device(isGet, () => {})],
  ])('a device that answers GET alone is online without a notice: %s', async (name, server) => {
    const { domain, notice, shown } = await open(name, `127.0.0.1:${await serving(server)}`);
    expect(notice).toBeUndefined();
    await expect.poll(shown).toBe('online, answers');
    expect(await get(domain)).toBe('hello');
  });

  it('a device that answers to its own name alone is online once a client has got a response', async () => {
    const isForIt = (request: string) => request.includes('named-');
    const server = device(isForIt, (socket) => void socket.end());
    const { domain, notice, shown } = await open('named', `127.0.0.1:${await serving(server)}`);
    expect(notice).toContain('closes connections without an answer to HTTP');
    expect(await shown()).toBe('degraded, wrong_protocol');
    await expect.poll(() => get(domain)).toBe('hello');
    expect(await shown()).toBe('online, answers');
  });

  it('a tunnel to a device that is not there is created with a notice', async () => {
    const { add } = await start();
    const port = await freePort();
    const absent = [
      ['closed', `127.0.0.1:${port}`, 'nothing listens at', 'refused'],
      ['asleep', `camera.invalid:${port}`, 'cannot resolve the upstream name camera.invalid', 'unreachable'],
      ['no-socket', `unix:${join(temporaryFolder(), 'none.sock')}`, 'nothing listens at unix:', 'refused'],
    ] as const;
    for (const [name, forwards_to, text, state] of absent) {
      const { notice, shown } = await add(name, forwards_to);
      expect(notice).toContain(text);
      expect(notice).toContain('clients get errors until');
      expect(await shown()).toBe(`degraded, ${state}`);
    }
  });

  it('clients get the same error from every upstream that is unreachable', { timeout: 60_000 }, async () => {
    const port = await freePort();
    const plain = await serving(createHttpServer((_req, res) => void res.end()));
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'file'), '');
    const unreachable: Record<string, string> = {
      address: `127.0.0.1:${port}`,
      localhost: `${port}`,
      'by-name': `upstream.localhost:${port}`,
      'unknown-name': `camera.invalid:${port}`,
      https: `https://127.0.0.1:${port}`,
      'https-by-name': `https://upstream.localhost:${port}`,
      'no-tls': `https://127.0.0.1:${plain}`,
      'no-tls-by-name': `https://localhost:${plain}`,
      socket: `unix:${join(folder, 'none.sock')}`,
      'no-socket': `unix:${join(folder, 'file')}`,
    };
    const { add } = await start();
    const messageOf = (name: string) =>
      `its upstream ${name.startsWith('no-tls') ? 'does not speak TLS' : 'is unreachable'}.`;
    for (const [name, forwards_to] of Object.entries(unreachable)) {
      const { domain } = await add(name, forwards_to);
      const { status, headers, body } = await getPublic(gateway, `https://${domain}`);
      const got = { name, status, code: headers['ngrok-error-code'], msg: JSON.parse(body).msg };
      const msg = `The agent is online, but ${messageOf(name)}`;
      expect(got).toEqual({ name, status: 502, code: 'ERR_NGROK_8012', msg });
    }
    for (const [name, forwards_to] of Object.entries(unreachable)) {
      if (forwards_to.startsWith('https:')) continue;
      const { domain } = await add(`tls-${name}`, forwards_to, 'tls');
      await expect(getPublic(gateway, `https://${domain}`), name).rejects.toMatchObject({ code: 'ECONNRESET' });
    }
  });

  it('clients reach a dev server on localhost that restarts on another address of it', unless(NO_IPV6), async () => {
    const port = await freePort();
    let close = await serveAt('127.0.0.1', port);
    const { domain, shown } = await open('dev', port);
    expect(await get(domain)).toBe('127.0.0.1');
    for (const host of ['::1', '127.0.0.1', '::1']) {
      await close();
      close = await serveAt(host, port);
      await expect.poll(() => get(domain), { timeout: 20_000 }).toBe(host);
      expect(await shown()).toBe('online, answers');
    }
  });
});
