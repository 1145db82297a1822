import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, type RequestListener, request, type Server } from 'node:http';
import { connect, createServer as createTcpServer, type Server as NetServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import type { Listener, Session } from '@ngrok/ngrok';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { ask } from '../support/http-request.ts';
import { listening } from '../support/loopback.ts';
import { selfSigned } from '../support/self-signed.ts';

let gateway: TestGateway;
let session: Session;
let servers: NetServer[];
beforeEach(async () => {
  servers = [];
  gateway = await startTestGateway({ tcpPorts: await freePorts(3) });
  session = await agentSession(gateway).connect();
});
afterEach(async () => {
  await gateway.close();
  for (const server of servers) {
    if ('closeAllConnections' in server) (server as Server).closeAllConnections();
    server.close();
  }
});

function listen(server: NetServer): Promise<number> {
  servers.push(server);
  return listening(server);
}

type Rule = { type: string; config?: object };

/** A policy with one rule for each phase. */
const policyOf = (phases: Record<string, Rule[]>) =>
  JSON.stringify(Object.fromEntries(Object.entries(phases).map(([phase, actions]) => [phase, [{ actions }]])));

const forwardTo = (url: string, more: object = {}): Rule => ({ type: 'forward-internal', config: { url, ...more } });

/** A public or internal HTTP endpoint, with an upstream in this process or an unused port. */
async function serve(host: string, answer: string | RequestListener | null, policy = ''): Promise<Listener> {
  const builder = session.httpEndpoint().scheme('HTTP').domain(host).poolingEnabled(true);
  if (policy) builder.trafficPolicy(policy);
  const listener = await builder.listen(false);
  const handler: RequestListener =
    typeof answer === 'string' ? (_req, res) => void res.end(answer) : (answer ?? (() => {}));
  const port = answer === null ? 9 : await listen(createServer(handler));
  listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
  return listener;
}

const get = (host: string, options = {}) => ask(gateway.httpPort, host, options);

it.each(['on_tcp_connect', 'on_http_request'])(
  'a client whose request is forwarded in %s cannot say who it is',
  async (phase) => {
    await serve('web.internal', (req, res) => void res.end(req.headers['x-forwarded-for']));
    await serve('app.localhost', 'outside', policyOf({ [phase]: [forwardTo('http://web.internal')] }));
    const { body } = await get('app.localhost', { headers: { 'x-forwarded-for': '203.0.113.9' } });
    expect(body).toBe('203.0.113.9, 127.0.0.1');
  },
);

describe('a request forwarded to an internal endpoint', () => {
  it('passes through that endpoint’s policy, and its response through both policies', async () => {
    const inner = policyOf({
      on_http_request: [{ type: 'add-headers', config: { headers: { 'x-inner': 'came by' } } }],
      on_http_response: [{ type: 'add-headers', config: { headers: { 'x-order': 'inner' } } }],
    });
    await serve(
      'web.internal',
      async (req, res) => {
        const { host, 'x-inner': mark, 'x-forwarded-for': client, 'x-outer': outer } = req.headers;
        res.end(JSON.stringify({ host, mark, client, outer, body: await text(req) }));
      },
      inner,
    );
    const outer = policyOf({
      on_http_request: [
        { type: 'add-headers', config: { headers: { 'x-outer': 'too' } } },
        forwardTo('http://web.internal'),
      ],
      on_http_response: [{ type: 'add-headers', config: { headers: { 'x-order': 'outer' } } }],
    });
    await serve('app.localhost', 'outside', outer);
    const { status, headers, body } = await get('app.localhost', { body: 'hello' });
    expect(status).toBe(200);
    expect(JSON.parse(body)).toEqual({
      host: 'app.localhost',
      mark: 'came by',
      client: '127.0.0.1',
      outer: 'too',
      body: 'hello',
    });
    expect(headers['x-order']).toBe('inner, outer');
    // Clients cannot reach it by its name.
    expect(await get('web.internal')).toMatchObject({ status: 404 });
  });

  it('can be answered by that endpoint’s policy', async () => {
    const answer = { type: 'custom-response', config: { status_code: 418, body: 'inside' } };
    await serve('web.internal', 'upstream', policyOf({ on_http_request: [answer] }));
    const marked = { type: 'add-headers', config: { headers: { 'x-outer': 'yes' } } };
    await serve(
      'app.localhost',
      'outside',
      policyOf({ on_http_request: [forwardTo('http://web.internal')], on_http_response: [marked] }),
    );
    expect(await get('app.localhost')).toMatchObject({ status: 418, body: 'inside', headers: { 'x-outer': 'yes' } });
  });

  it('goes to the members of a pool in turn', async () => {
    await serve('web.internal', 'one');
    await serve('web.internal', 'two');
    await serve('app.localhost', null, policyOf({ on_http_request: [forwardTo('http://web.internal')] }));
    const bodies = [(await get('app.localhost')).body, (await get('app.localhost')).body];
    expect(bodies.sort()).toEqual(['one', 'two']);
  });

  it('can be a WebSocket', async () => {
    const server = createServer();
    new WebSocketServer({ server }).on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    const port = await listen(server);
    const listener = await session.httpEndpoint().scheme('HTTP').domain('ws.internal').listen(false);
    listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
    await serve('app.localhost', null, policyOf({ on_http_request: [forwardTo('http://ws.internal')] }));
    const socket = new WebSocket(`ws://127.0.0.1:${gateway.httpPort}/`, { headers: { host: 'app.localhost' } });
    await once(socket, 'open');
    socket.send('ping');
    const [data] = await once(socket, 'message');
    expect(String(data)).toBe('ping');
    const closed = once(socket, 'close');
    await listener.close();
    await closed;
  });

  it('gets 404 when that endpoint is offline, or continues when the policy says so', async () => {
    const halts = policyOf({ on_http_request: [forwardTo('http://gone.internal')] });
    await serve('halt.localhost', 'outside', halts);
    expect(await get('halt.localhost')).toMatchObject({
      status: 404,
      headers: { 'ngrok-error-code': 'ERR_NGROK_3200' },
    });
    const goesOn = policyOf({ on_http_request: [forwardTo('http://gone.internal', { on_error: 'continue' })] });
    await serve('continue.localhost', async (req, res) => void res.end(`outside: ${await text(req)}`), goesOn);
    expect(await get('continue.localhost', { body: 'kept' })).toMatchObject({ status: 200, body: 'outside: kept' });
  });

  it('waits for that endpoint when its agent was lost a moment ago, unless the policy has an answer', async () => {
    await serve('halt.localhost', 'outside', policyOf({ on_http_request: [forwardTo('http://lost.internal')] }));
    const goesOn = policyOf({ on_http_request: [forwardTo('http://lost.internal', { on_error: 'continue' })] });
    await serve('continue.localhost', 'outside', goesOn);
    const bind = async () => {
      const own = await agentSession(gateway).connect();
      const port = await listen(createServer((_req, res) => void res.end('inside')));
      (await own.httpEndpoint().scheme('HTTP').domain('lost.internal').listen(false))
        .forward(`127.0.0.1:${port}`)
        .catch(() => {});
    };
    await bind();
    expect((await get('halt.localhost')).body).toBe('inside');
    const [last] = [...gateway.sessions.sessions].slice(-1);
    last?.end(new Error('cut by the test'));
    await expect.poll(() => gateway.endpoints.list().length).toBe(2);
    expect((await get('continue.localhost')).body).toBe('outside');
    const answer = get('halt.localhost');
    await expect.poll(() => gateway.counters.waiting).toBe(1);
    await bind();
    expect((await answer).body).toBe('inside');
  });

  it('gets 502 when that endpoint’s upstream is unreachable, or continues when that is safe', async () => {
    await serve('dead.internal', null);
    await serve('halt.localhost', 'outside', policyOf({ on_http_request: [forwardTo('http://dead.internal')] }));
    const failed = { status: 502, headers: { 'ngrok-error-code': 'ERR_NGROK_3210' } };
    expect(await get('halt.localhost')).toMatchObject(failed);
    const goesOn = policyOf({ on_http_request: [forwardTo('http://dead.internal', { on_error: 'continue' })] });
    await serve('continue.localhost', 'outside', goesOn);
    expect(await get('continue.localhost')).toMatchObject({ status: 200, body: 'outside' });
    // A partly sent body cannot be sent again.
    expect(await get('continue.localhost', { body: 'lost' })).toMatchObject(failed);
  });

  it('is forwarded at most three times, so that loops end', async () => {
    await serve('3.internal', 'at last');
    for (const hop of [2, 1]) {
      await serve(`${hop}.internal`, null, policyOf({ on_http_request: [forwardTo(`http://${hop + 1}.internal`)] }));
    }
    await serve('app.localhost', null, policyOf({ on_http_request: [forwardTo('http://1.internal')] }));
    expect(await get('app.localhost')).toMatchObject({ status: 200, body: 'at last' });
    await serve('circle.internal', null, policyOf({ on_http_request: [forwardTo('http://circle.internal')] }));
    await serve('lost.localhost', null, policyOf({ on_http_request: [forwardTo('http://circle.internal')] }));
    expect(await get('lost.localhost')).toMatchObject({
      status: 502,
      headers: { 'ngrok-error-code': 'ERR_NGROK_3210' },
    });
  });
});

describe('a connection forwarded to an internal endpoint', () => {
  it('carries all its requests there', async () => {
    const inside = await serve(
      'web.internal',
      'inside',
      policyOf({
        on_http_response: [{ type: 'add-headers', config: { headers: { 'x-inner': 'yes' } } }],
      }),
    );
    await serve('app.localhost', 'outside', policyOf({ on_tcp_connect: [forwardTo('http://web.internal')] }));
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    for (const _ of [1, 2]) {
      expect(await get('app.localhost', { agent })).toMatchObject({ body: 'inside', headers: { 'x-inner': 'yes' } });
    }
    await inside.close();
    await expect(get('app.localhost', { agent })).rejects.toThrow();
    agent.destroy();
  });

  it('is refused beside options that it would bypass', async () => {
    await serve('web.internal', 'inside');
    const bind = (phase: string) => {
      const policy = policyOf({ [phase]: [forwardTo('http://web.internal')] });
      const builder = session.httpEndpoint().scheme('HTTP').domain('app.localhost');
      return builder.basicAuth('me', 'password').trafficPolicy(policy).listen(false);
    };
    await expect(bind('on_tcp_connect')).rejects.toThrow('option BasicAuth');
    await bind('on_http_request');
    expect(await get('app.localhost')).toMatchObject({ status: 401 });
    const authorization = `Basic ${Buffer.from('me:password').toString('base64')}`;
    expect(await get('app.localhost', { headers: { authorization } })).toMatchObject({ body: 'inside' });
  });

  it('carries TCP without that endpoint’s own policy', async () => {
    const port = await listen(createTcpServer((socket) => socket.on('error', () => {}).end('from inside')));
    const tcp = async (address: string | null, policy: string) => {
      const builder = session.tcpEndpoint();
      if (address) builder.remoteAddr(address);
      if (policy) builder.trafficPolicy(policy);
      const listener = await builder.listen(false);
      listener.forward(`tcp://127.0.0.1:${port}`).catch(() => {});
      return listener;
    };
    const open = await tcp('open.internal:22', '');
    await tcp('closed.internal:22', policyOf({ on_tcp_connect: [{ type: 'deny' }] }));
    const first = await tcp(null, policyOf({ on_tcp_connect: [forwardTo('tcp://open.internal:22')] }));
    const second = await tcp(null, policyOf({ on_tcp_connect: [forwardTo('tcp://closed.internal:22')] }));
    expect(await received(first)).toBe('from inside');
    expect(await received(second)).toBe('');
    await open.close();
    expect(await received(first)).toBe('');
    await tcp('circle.internal:22', policyOf({ on_tcp_connect: [forwardTo('tcp://circle.internal:22')] }));
    const third = await tcp(null, policyOf({ on_tcp_connect: [forwardTo('tcp://circle.internal:22')] }));
    expect(await received(third)).toBe('');
  });

  it('passes TLS through', async () => {
    const { cert, key } = await selfSigned();
    const port = await listen(createTlsServer({ cert, key }, (socket) => socket.on('error', () => {}).end('secret')));
    const inside = await session.tlsEndpoint().domain('vault.internal').listen(false);
    inside.forward(`tls://127.0.0.1:${port}`).catch(() => {});
    const policy = policyOf({ on_tcp_connect: [forwardTo('tls://vault.internal')] });
    await session.tlsEndpoint().domain('vault.localhost').trafficPolicy(policy).listen(false);
    const servername = 'vault.localhost';
    const client = connectTls({ host: '127.0.0.1', port: gateway.httpsPort, servername, rejectUnauthorized: false });
    await once(client, 'secureConnect');
    expect(client.getPeerX509Certificate()?.toString()).toBe(cert.endsWith('\n') ? cert : `${cert}\n`);
    expect(await text(client)).toBe('secret');
  });
});

describe('a forwarded connection ends with the endpoint that forwards it', () => {
  it.each(['on_http_request', 'on_tcp_connect'])('as a WebSocket, by %s', async (phase) => {
    const server = createServer();
    new WebSocketServer({ server });
    const inside = await session.httpEndpoint().scheme('HTTP').domain('ws.internal').listen(false);
    inside.forward(`http://127.0.0.1:${await listen(server)}`).catch(() => {});
    const outside = await serve('app.localhost', null, policyOf({ [phase]: [forwardTo('http://ws.internal')] }));
    const socket = new WebSocket(`ws://127.0.0.1:${gateway.httpPort}/`, { headers: { host: 'app.localhost' } });
    await once(socket, 'open');
    await Promise.all([once(socket, 'close'), outside.close()]);
    expect(gateway.endpoints.list()).toHaveLength(1);
  });

  it('as a response in progress', async () => {
    await serve('web.internal', (_req, res) => void res.write('begun'));
    const outer = policyOf({ on_http_request: [forwardTo('http://web.internal')] });
    const outside = await serve('app.localhost', null, outer);
    const req = request({ port: gateway.httpPort, headers: { host: 'app.localhost' } }).end();
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    await once(res, 'data');
    await Promise.all([expect(text(res)).rejects.toThrow('aborted'), outside.close()]);
  });

  it.each(['tcp', 'tls'])('as a %s connection', async (protocol) => {
    const port = await listen(createTcpServer((socket) => socket.on('error', () => {}).write('from inside')));
    const policy = policyOf({
      on_tcp_connect: [
        ...(protocol === 'tls' ? [{ type: 'terminate-tls' }] : []),
        forwardTo(`${protocol}://open.internal:22`),
      ],
    });
    const [inner, outer] =
      protocol === 'tcp'
        ? [session.tcpEndpoint().remoteAddr('open.internal:22'), session.tcpEndpoint().trafficPolicy(policy)]
        : [
            session.tlsEndpoint().domain('open.internal:22'),
            session.tlsEndpoint().domain('app.localhost').trafficPolicy(policy),
          ];
    const inside = await inner.listen(false);
    inside.forward(`tcp://127.0.0.1:${port}`).catch(() => {});
    const outside = await outer.listen(false);
    const client =
      protocol === 'tcp'
        ? connect(Number(new URL(String(outside.url())).port), '127.0.0.1')
        : connectTls({ port: gateway.httpsPort, servername: 'app.localhost', rejectUnauthorized: false });
    await once(client, 'data');
    const closed = new Promise((resolve) => client.on('error', () => {}).once('close', resolve));
    await Promise.all([closed, outside.close()]);
  });
});

/** The bytes from a tcp endpoint until it closes or resets. */
async function received(listener: Listener): Promise<string> {
  const socket: Socket = connect(Number(new URL(String(listener.url())).port), '127.0.0.1');
  let seen = '';
  socket.on('data', (chunk) => {
    seen += chunk;
  });
  socket.on('error', () => {});
  await new Promise((resolve) => socket.once('close', resolve));
  return seen;
}
