import { once } from 'node:events';
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from 'node:net';
import type { Listener, Session } from '@ngrok/ngrok';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { GatewayOptions } from '../../src/gateway/context/gateway-options.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { listening } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { SilentLink } from './sessions/session-gateway.ts';

const code = (errorCode: string) => expect.objectContaining({ errorCode });

async function start(options: Partial<GatewayOptions> & { ports?: number } = {}): Promise<TestGateway> {
  const { ports = 4, ...others } = options;
  const gateway = await startTestGateway({ tcpPorts: await freePorts(ports), ...others });
  onTestFinished(() => gateway.close());
  return gateway;
}

/** A server that greets like SSH and SMTP, then echoes; closed after the test. */
async function greeter(greeting = 'hello'): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.write(greeting);
    socket.pipe(socket);
  });
  await listening(server);
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

function forward(listener: Listener, port: number): void {
  // Settles when the listener closes, which these tests do not need.
  listener.forward(`tcp://127.0.0.1:${port}`).catch(() => {});
}

const portOf = (listener: Listener) => Number(new URL(String(listener.url())).port);

async function client(port: number): Promise<Socket> {
  const socket = connectTcp(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  return socket.on('error', () => {});
}

/** Waits for a close or reset: `once` would throw on a reset. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

/** The server's greeting, and its echo of a line. */
async function converse(port: number, expected = 'hello'): Promise<string> {
  const socket = await client(port);
  let seen = '';
  socket.on('data', (chunk) => {
    seen += chunk;
  });
  while (seen !== expected) await once(socket, 'data');
  socket.write(' and back');
  while (seen !== `${expected} and back`) await once(socket, 'data');
  socket.destroy();
  return seen;
}

const refused = (port: number) =>
  client(port).then(
    () => null,
    (error: NodeJS.ErrnoException) => error.code,
  );

describe('a tcp endpoint', () => {
  it('serves clients that send data, however many connect and stay silent', async () => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    const listener = await session.tcpEndpoint().listen(false);
    forward(listener, await greeter(''));
    for (let count = 0; count < 70; count++) await client(portOf(listener));
    expect(await converse(portOf(listener), '')).toBe(' and back');
  });

  it('closes its port and connections when it goes offline', async () => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    const listener = await session.tcpEndpoint().listen(false);
    forward(listener, await greeter());
    const open = await client(portOf(listener));
    await once(open, 'data');
    const ended = closed(open);
    await listener.close();
    await ended;
    expect(await refused(portOf(listener))).toBe('ECONNREFUSED');
    const again = await session
      .tcpEndpoint()
      .remoteAddr(`localhost:${portOf(listener)}`)
      .listen(false);
    expect(again.url()).toBe(listener.url());
  });

  it('can share its port with other pooled endpoints', async () => {
    const gateway = await start();
    const [first, second] = [await agentSession(gateway).connect(), await agentSession(gateway).connect()];
    const one = await first.tcpEndpoint().poolingEnabled(true).listen(false);
    const address = `localhost:${portOf(one)}`;
    await expect(second.tcpEndpoint().remoteAddr(address).listen(false)).rejects.toEqual(code('ERR_NGROK_18017'));
    const two = await second.tcpEndpoint().remoteAddr(address).poolingEnabled(true).listen(false);
    forward(one, await greeter('one'));
    forward(two, await greeter('two'));
    const greetings = [await greeting(portOf(one)), await greeting(portOf(one))];
    expect(greetings.sort()).toEqual(['one', 'two']);
    await one.close();
    expect([await greeting(portOf(one)), await greeting(portOf(one))]).toEqual(['two', 'two']);
  });
});

async function greeting(port: number): Promise<string> {
  const socket = await client(port);
  const [bytes] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  return bytes.toString();
}

describe('the port of a tcp endpoint', () => {
  it('stays the same when the SDK reconnects', async () => {
    const gateway = await start();
    const link = await SilentLink.to(gateway.sessionPort);
    const session = await agentSession(gateway, `127.0.0.1:${link.port}`)
      .handleDisconnection(() => true)
      .connect();
    const listener = await session.tcpEndpoint().listen(false);
    forward(listener, await greeter());
    const back = new Promise((resolve) => gateway.endpoints.once('added', resolve));
    link.cut();
    await back;
    expect(gateway.endpoints.list().map(({ url }) => url)).toEqual([listener.url()]);
    expect(await converse(portOf(listener))).toBe('hello and back');
    await session.close();
  });

  it('is available again after a restart of the gateway, and not assigned to others meanwhile', async () => {
    const dataDir = temporaryFolder();
    const tcpPorts = await freePorts(3);
    const first = await startTestGateway({ dataDir, tcpPorts });
    const listener = await (await agentSession(first).connect()).tcpEndpoint().listen(false);
    await first.close();
    const second = await start({ dataDir, tcpPorts });
    const session = await agentSession(second).connect();
    const others = [await session.tcpEndpoint().listen(false), await session.tcpEndpoint().listen(false)];
    expect(others.map(portOf)).not.toContain(portOf(listener));
    const again = await session
      .tcpEndpoint()
      .remoteAddr(`localhost:${portOf(listener)}`)
      .listen(false);
    expect(again.url()).toBe(listener.url());
    await expect(session.tcpEndpoint().listen(false)).rejects.toEqual(code('ERR_NGROK_18021'));
  });

  it('is taken from the authtoken with the most when no port is free', async () => {
    const gateway = await start({ ports: 3 });
    const { store } = gateway;
    const greedy = await agentSession(gateway).connect();
    const held = [1, 2, 3].map(() => greedy.tcpEndpoint().listen(false));
    const newest = (await Promise.all(held)).find((one) => one.id() === gateway.endpoints.list().at(-1)?.id);
    const ended = expect(newest?.forward('tcp://127.0.0.1:9')).rejects.toThrow('tcp port limit reached');
    const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
    const other = await agentSession(gateway).authtoken(token).connect();
    const own = await other.tcpEndpoint().listen(false);
    expect(portOf(own)).toBe(portOf(newest as Listener));
    await ended;
    for (const session of [other, greedy]) {
      await expect(session.tcpEndpoint().listen(false)).rejects.toEqual(code('ERR_NGROK_18021'));
    }
    expect(gateway.endpoints.list()).toHaveLength(3);
  });

  it('moves to a new session when the old connection is half open', async () => {
    const gateway = await start();
    const link = await SilentLink.to(gateway.sessionPort);
    const dead = await agentSession(gateway, `127.0.0.1:${link.port}`).connect();
    const listener = await dead.tcpEndpoint().listen(false);
    link.goSilent();
    const session = await agentSession(gateway).connect();
    const again = await session
      .tcpEndpoint()
      .remoteAddr(`localhost:${portOf(listener)}`)
      .listen(false);
    forward(again, await greeter());
    expect(await converse(portOf(again))).toBe('hello and back');
  });

  it('is skipped when another program uses it, unless it was requested', async () => {
    const gateway = await start({ ports: 2 });
    const { first, last } = await occupied(gateway);
    const session = await agentSession(gateway).connect();
    expect(portOf(await session.tcpEndpoint().listen(false))).toBe(last);
    const taken = session.tcpEndpoint().remoteAddr(`localhost:${first}`).listen(false);
    await expect(taken).rejects.toThrow(/another program uses it/);
    await expect(session.tcpEndpoint().listen(false)).rejects.toEqual(code('ERR_NGROK_18021'));
  });

  it.each<[string, string, (session: Session, gateway: TestGateway) => Promise<Listener>]>([
    ['is outside the range', 'ERR_NGROK_307', (s) => s.tcpEndpoint().remoteAddr('localhost:22').listen(false)],
    ['has another host', 'ERR_NGROK_307', (s) => s.tcpEndpoint().remoteAddr('example.com:20000').listen(false)],
    ['is not a number', 'ERR_NGROK_9030', (s) => s.tcpEndpoint().remoteAddr('localhost:ssh').listen(false)],
  ])('is refused when it %s', async (_what, errorCode, bind) => {
    const gateway = await start();
    const session = await agentSession(gateway).connect();
    await expect(bind(session, gateway)).rejects.toEqual(code(errorCode));
    expect(gateway.endpoints.list()).toEqual([]);
  });

  it('is refused by a gateway without tcp ports', async () => {
    const gateway = await start({ tcpPorts: null });
    const session = await agentSession(gateway).connect();
    await expect(session.tcpEndpoint().listen(false)).rejects.toEqual(code('ERR_NGROK_332'));
  });
});

/** Occupies the first of two ports. */
async function occupied(gateway: TestGateway): Promise<{ first: number; last: number }> {
  const session = await agentSession(gateway).connect();
  const listeners = [await session.tcpEndpoint().listen(false), await session.tcpEndpoint().listen(false)];
  const [first = 0, last = 0] = listeners.map(portOf).sort((a, b) => a - b);
  for (const listener of listeners) await listener.close();
  const program = createServer().listen(first, '127.0.0.1');
  await once(program, 'listening');
  onTestFinished(() => void program.close());
  return { first, last };
}

it('a tcp endpoint needs an ACL rule that allows its address', async () => {
  const gateway = await start({ domain: 'gateway.test' });
  const { store } = gateway;
  const open = await (await agentSession(gateway).connect()).tcpEndpoint().listen(false);
  const address = String(open.url()).replace('tcp://', '');
  expect(address).toMatch(/^tcp\.gateway\.test:\d+$/);
  await open.close();
  const { token } = await store.database.write(() => issueCredential(store, { acl: [`bind:${address}`] }));
  const session = await agentSession({ ...gateway, authtoken: token }).connect();
  await expect(session.tcpEndpoint().listen(false)).rejects.toEqual(code('ERR_NGROK_356'));
  const other = address.replace(/\d+$/, (port) => String(Number(port) + 1));
  await expect(session.tcpEndpoint().remoteAddr(other).listen(false)).rejects.toEqual(code('ERR_NGROK_308'));
  expect((await session.tcpEndpoint().remoteAddr(address).listen(false)).url()).toBe(`tcp://${address}`);
});
