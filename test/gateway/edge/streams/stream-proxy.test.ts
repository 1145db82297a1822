import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { Duplex, PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StreamProxy } from '../../../../src/gateway/edge/streams/stream-proxy.ts';
import { StreamsExhausted } from '../../../../src/gateway/endpoints/online-endpoint.ts';
import { collect, DirectEndpoint } from '../../../support/edge.ts';
import { edgeContext } from '../../../support/edge-context.ts';
import { listening } from '../../../support/loopback.ts';

const servers: Server[] = [];
const sockets: Socket[] = [];
let proxy: StreamProxy;
const errors = new WeakMap<Socket, string | undefined>();

beforeEach(() => {
  proxy = new StreamProxy(edgeContext());
});
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) server.close();
});

/** @returns the port of a server that allows half-open connections */
async function listen(onSocket: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    onSocket(socket.on('error', () => {}));
  });
  servers.push(server);
  return listening(server);
}

/** An endpoint with this upstream. */
async function endpointTo(onSocket: (socket: Socket) => void, policy: object | null = null): Promise<DirectEndpoint> {
  return new DirectEndpoint('127.0.0.1', 'tcp', await listen(onSocket), policy);
}

/** A client of a public port for the endpoint. */
async function clientOf(endpoint: DirectEndpoint, streams = proxy): Promise<Socket> {
  const port = await listen((socket) => streams.serve(socket, endpoint));
  const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  client.on('error', (error: NodeJS.ErrnoException) => errors.set(client, error.code));
  sockets.push(client);
  return client;
}

/** @returns the code of the error that a connection ends with; undefined when it ends in an orderly way */
async function fateOf(client: Socket): Promise<string | undefined> {
  client.resume();
  if (!client.closed) await new Promise((resolve) => client.once('close', resolve));
  return errors.get(client);
}

/** Waits until the stream to the upstream is closed. */
async function streamClosed({ streams: [stream] }: DirectEndpoint): Promise<void> {
  if (!stream) throw new Error('no stream was opened');
  if (!stream.closed) await once(stream, 'close');
}

const close = [{ actions: [{ type: 'close-connection' }] }];

describe('a connection', () => {
  it('carries bytes both ways, and each direction ends separately', async () => {
    const endpoint = await endpointTo((socket) => {
      socket.write('welcome ');
      socket.once('end', () => socket.end(' bye'));
      socket.on('data', (bytes: Buffer) => socket.write(bytes.toString().toUpperCase()));
    });
    const client = await clientOf(endpoint);
    client.end('hello');
    expect(String(await collect(client))).toBe('welcome HELLO bye');
  });

  it('continues towards an upstream that has ended its side', async () => {
    const received = new PassThrough();
    const endpoint = await endpointTo((socket) => socket.end('all').pipe(received));
    const client = await clientOf(endpoint);
    await once(client.resume(), 'end');
    client.end('the rest');
    expect(String(await collect(received))).toBe('the rest');
  });

  it('applies back-pressure to the client without losing data', async () => {
    const endpoint = await endpointTo(() => {});
    let received = 0;
    let takeMore = () => {};
    const upstream = new Duplex({
      read() {},
      write(bytes: Buffer, _encoding, done) {
        received += bytes.length;
        if (received > bytes.length) done();
        else takeMore = done;
      },
    });
    endpoint.open = () => upstream;
    const paused = new PassThrough();
    const port = await listen((socket) => {
      socket.once('pause', () => paused.end());
      proxy.serve(socket, endpoint);
    });
    const client = connect(port, '127.0.0.1');
    sockets.push(client);
    client.end(Buffer.alloc(4_000_000, 'x'));
    await once(paused.resume(), 'end');
    expect(upstream.writableLength).toBeLessThan(500_000);
    takeMore();
    await once(upstream, 'finish');
    expect(received).toBe(4_000_000);
  });

  it('is reset when the upstream resets, so that it does not look complete', async () => {
    const endpoint = await endpointTo((socket) => {
      socket.write('half', () => socket.resetAndDestroy());
    });
    const client = await clientOf(endpoint);
    expect(await fateOf(client)).toBe('ECONNRESET');
  });

  it('is reset when the upstream is unreachable', async () => {
    const endpoint = await endpointTo(() => {});
    endpoint.open = () => {
      throw new Error('the session has ended');
    };
    expect(await fateOf(await clientOf(endpoint))).toBe('ECONNRESET');
  });

  it('ends at the upstream when the client resets', async () => {
    const endpoint = await endpointTo((socket) => socket.write('greeting'));
    const client = await clientOf(endpoint);
    await once(client, 'data');
    client.resetAndDestroy();
    await streamClosed(endpoint);
  });

  it('is closed after the idle timeout', async () => {
    const endpoint = await endpointTo((socket) => socket.write('greeting'));
    const client = await clientOf(endpoint, new StreamProxy(edgeContext(), { idleTimeout: 50 }));
    expect(await fateOf(client)).toBe('ECONNRESET');
    await streamClosed(endpoint);
  });

  it('is closed after the idle timeout even if one direction has ended', async () => {
    const endpoint = await endpointTo((socket) => socket.end('greeting').resume());
    const client = await clientOf(endpoint, new StreamProxy(edgeContext(), { idleTimeout: 50 }));
    await once(client, 'data');
    await streamClosed(endpoint);
  });
});

describe('an agent at its connection limit', () => {
  it('gets a waiting connection when another has ended', async () => {
    const endpoint = await endpointTo((socket) => socket.end('at last'));
    const { open } = endpoint;
    let refusals = 3;
    endpoint.open = () => {
      if (refusals-- > 0) throw new StreamsExhausted();
      return open();
    };
    expect(String(await collect(await clientOf(endpoint)))).toBe('at last');
  });

  it('causes a reset after the timeout', async () => {
    const endpoint = await endpointTo(() => {});
    endpoint.open = () => {
      throw new StreamsExhausted();
    };
    const client = await clientOf(endpoint, new StreamProxy(edgeContext(), { streamWait: 30 }));
    expect(await fateOf(client)).toBe('ECONNRESET');
  });

  it('gets no stream for a client that has disconnected', async () => {
    const endpoint = await endpointTo(() => {});
    let served: Socket | undefined;
    endpoint.open = () => {
      served?.destroy();
      throw new StreamsExhausted();
    };
    const port = await listen((socket) => {
      served = socket;
      proxy.serve(socket, endpoint);
      endpoint.open = () => {
        throw new Error('asked again');
      };
    });
    const client = connect(port, '127.0.0.1').on('error', () => {});
    sockets.push(client);
    await fateOf(client);
    expect(served?.destroyed).toBe(true);
  });
});

describe('the phase on_tcp_connect', () => {
  it('allows connections', async () => {
    const policy = { on_tcp_connect: [{ expressions: ["conn.client_ip != '127.0.0.1'"], actions: close[0]?.actions }] };
    const endpoint = await endpointTo((socket) => socket.end('welcome'), policy);
    expect(String(await collect(await clientOf(endpoint)))).toBe('welcome');
  });

  for (const type of ['close-connection', 'deny']) {
    it(`cuts them with ${type} before they reach the upstream`, async () => {
      const policy = { on_tcp_connect: [{ expressions: ["conn.client_ip == '127.0.0.1'"], actions: [{ type }] }] };
      const endpoint = await endpointTo((socket) => socket.end('welcome'), policy);
      expect(await fateOf(await clientOf(endpoint))).toBe('ECONNRESET');
      expect(endpoint.streams).toEqual([]);
    });
  }
});

describe('the PROXY protocol', () => {
  it('sends its header first when the endpoint asks for it', async () => {
    for (const version of [1, 2] as const) {
      const endpoint = await endpointTo((socket) => socket.once('data', (bytes: Buffer) => socket.end(bytes)));
      endpoint.proxyProtocol = version;
      const client = await clientOf(endpoint);
      await once(client, 'connect');
      const port = client.localPort ?? 0;
      const received = await collect(client);
      if (version === 1) expect(String(received)).toContain(`PROXY TCP4 127.0.0.1 127.0.0.1 ${port} `);
      else expect([received.readUInt8(13), received.readUInt16BE(24)]).toEqual([0x11, port]);
    }
  });

  it('is not used otherwise', async () => {
    const endpoint = await endpointTo((socket) => socket.once('data', (bytes: Buffer) => socket.end(bytes)));
    const client = await clientOf(endpoint);
    client.end('mine');
    expect(String(await collect(client))).toBe('mine');
  });
});

it('gateway-limit-bandwidth limits what connections of one address get together, and delivers all of it', async () => {
  // 500 kB/s.
  const policy = {
    on_tcp_connect: [{ actions: [{ type: 'gateway-limit-bandwidth', config: { bandwidth: '4Mbit' } }] }],
  };
  const endpoint = await endpointTo((socket) => socket.end(Buffer.alloc(200_000)), policy);
  const began = performance.now();
  const got = await Promise.all(
    [await clientOf(endpoint), await clientOf(endpoint)].map((client) => collect(client.end() && client)),
  );
  expect(got.map(({ length }) => length)).toEqual([200_000, 200_000]);
  expect(performance.now() - began).toBeGreaterThan((400_000 / 500) * 0.8);
});
