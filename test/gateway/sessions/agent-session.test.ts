import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { Agent, type IncomingMessage, type RequestOptions, request } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import type { Listener, Session } from '@ngrok/ngrok';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { FrameWriter } from '../../../src/agent-protocol/frames.ts';
import { StreamType, streamPrefix } from '../../../src/agent-protocol/messages.ts';
import type { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import { type AgentUpstream, StreamsExhausted } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { makeDataDir } from '../../support/gateway.ts';
import { listening } from '../../support/loopback.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { closeOf } from '../../support/until.ts';
import { auth, rawAgent, rawSession } from './raw-agent.ts';
import { SessionGateway, SilentLink, upstream } from './session-gateway.ts';

/** Waits until an endpoint goes offline. */
async function offline(endpoints: EndpointRegistry, host: string): Promise<void> {
  while (endpoints.lookup('https', host)) await once(endpoints, 'removed');
}

async function listen(session: Session, host: string, port: number): Promise<Listener> {
  const listener = await session.httpEndpoint().domain(host).listen(false);
  // The promise settles when the listener closes; the tests look at the gateway's side.
  listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
  return listener;
}

/** A stream to the agent, as soon as enough of the earlier ones count as ended there. */
async function openWhenFree(endpoint: AgentUpstream): Promise<Duplex> {
  for (;;) {
    try {
      return endpoint.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
    } catch (error) {
      if (!(error instanceof StreamsExhausted)) throw error;
      await delay(10);
    }
  }
}

describe('a session of the SDK', () => {
  it('gets a random name when it names none, and plain http when it asks for that', async () => {
    const gateway = await SessionGateway.start();
    const session = await gateway.agent().connect();
    expect((await session.httpEndpoint().listen(false)).url()).toMatch(
      /^https:\/\/[a-z]+-[a-z]+-\d{4}\.localhost:8443$/,
    );
    const plain = await session.httpEndpoint().scheme('HTTP').domain('Plain.localhost').listen(false);
    expect(plain.url()).toBe('http://plain.localhost:8080');
    expect(gateway.endpoints.lookup('http', 'plain.localhost')?.protocol).toBe('http');
  });

  it('serves more concurrent requests than the agent accepts streams, and reuses streams', async () => {
    const gateway = await SessionGateway.start();
    const connections = new Set<unknown>();
    const port = await upstream((req, res) => {
      connections.add(req.socket);
      res.end('ok');
    });
    const session = await gateway.agent().connect();
    await listen(session, 'busy.localhost', port);
    const agent = agentOver(gateway, 'busy.localhost');
    const round = () => Promise.all(Array.from({ length: 300 }, async () => (await send(agent)).status));
    expect(new Set(await round())).toEqual(new Set([200]));
    const opened = connections.size;
    expect(new Set(await round())).toEqual(new Set([200]));
    expect(connections.size).toBe(opened);
  });

  it.each(['/endless', '/idle'])(
    'frees the agent of hundreds of connections that clients break off: %s',
    async (path) => {
      const gateway = await SessionGateway.start();
      const chunk = Buffer.alloc(65_536);
      let open = 0;
      const port = await upstream((req, res) => {
        open += 1;
        res.on('close', () => {
          open -= 1;
        });
        if (req.url === '/small') return res.end('fine');
        if (req.url === '/idle') return res.write('data: nothing more to come\n\n');
        const more = () => {
          while (!res.destroyed && res.write(chunk));
        };
        res.on('drain', more);
        more();
      });
      const session = await gateway.agent().connect();
      await listen(session, 'video.localhost', port);
      const [endpoint] = [...gateway.server.sessions].flatMap(({ listeners }) => [...listeners]);
      if (!endpoint) throw new Error('offline');
      for (let count = 0; count < 600; count++) {
        const stream = await openWhenFree(endpoint);
        stream.write(`GET ${path} HTTP/1.1\r\nHost: video.localhost\r\n\r\n`);
        await once(stream, 'readable');
        // Some are aborted immediately, some when the window is used up and the agent waits for credit.
        if (count % 50 === 0) await delay(10);
        stream.destroy();
      }
      await expect.poll(() => [open, endpoint.lane.streams.size]).toEqual([0, 0]);
      expect(await gateway.get('video.localhost', '/small')).toContain('fine');
      await session.httpEndpoint().domain('other.localhost').listen(false);
    },
  );

  it('is replaced when an upstream keeps half of its streams open after clients have left, and others need them', async () => {
    const gateway = await SessionGateway.start(0, undefined, { limits: { connections: 40 } });
    const hung = createServer({ allowHalfOpen: true }, (socket) => void sockets.push(socket.resume()));
    const sockets: Socket[] = [];
    await listening(hung);
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      hung.close();
    });
    const session = await gateway.agent({ reconnects: true }).connect();
    onTestFinished(() => session.close());
    await listen(session, 'hung.localhost', (hung.address() as AddressInfo).port);
    const port = await upstream((req, res) => (req.url === '/held' ? void res.write('held') : res.end('fine')));
    await listen(session, 'fine.localhost', port);
    const endpoint = gateway.endpoints.lookup('https', 'hung.localhost');
    if (!endpoint) throw new Error('offline');
    const open = () => endpoint.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
    const streams = Array.from({ length: 36 }, open);
    expect(open).toThrow(StreamsExhausted);
    for (const stream of streams) stream.write('GET / HTTP/1.1\r\nHost: hung.localhost\r\n\r\n');
    await expect.poll(() => sockets.length).toBe(36);
    for (const stream of streams) stream.destroy();
    expect(await gateway.get('fine.localhost')).toContain('fine');
    // Of four that are left, one endpoint gets two; the one that was just used is counted for a moment.
    const answerHeld = () => gateway.get('fine.localhost', '/held').catch(() => 'refused');
    const held = () => Promise.race([answerHeld(), delay(500, 'held')]);
    await expect.poll(held).toBe('held');
    await expect.poll(held).toBe('held');
    await expect(gateway.get('fine.localhost')).rejects.toThrow(StreamsExhausted);
    const answer = () => gateway.get('fine.localhost').catch(String);
    await expect.poll(answer, { interval: 500 }).toContain('fine');
  });

  it('takes an endpoint offline and closes its connections before close() returns', async () => {
    const gateway = await SessionGateway.start();
    const port = await upstream((_req, res) => void res.write('never ending'));
    const session = await gateway.agent().connect();
    const listener = await listen(session, 'gone.localhost', port);
    const stream = gateway.endpoints
      .lookup('https', 'gone.localhost')
      ?.openStream({ address: '1.2.3.4:5', protocol: 'https' });
    stream?.write('GET / HTTP/1.1\r\nHost: gone.localhost\r\n\r\n');
    if (stream) await once(stream, 'data');
    await listener.close();
    expect(gateway.endpoints.lookup('https', 'gone.localhost')).toBeUndefined();
    expect(stream?.destroyed).toBe(true);
    await listen(session, 'gone.localhost', port);
  });

  it('takes everything offline immediately when the agent closes the connection', async () => {
    const gateway = await SessionGateway.start();
    const link = await SilentLink.to(gateway.port);
    const session = await gateway.agent({ port: link.port }).connect();
    await listen(session, 'a.localhost', 9);
    link.cut();
    await offline(gateway.endpoints, 'a.localhost');
    expect([...gateway.server.sessions]).toEqual([]);
  });

  it('binds a thousand endpoints', async () => {
    const gateway = await SessionGateway.start();
    const session = await gateway.agent().connect();
    const names = Array.from({ length: 1000 }, (_, at) => `d${at}.localhost`);
    await Promise.all(names.map((name) => session.httpEndpoint().domain(name).listen(false)));
    expect(gateway.endpoints.list()).toHaveLength(1000);
  });

  it('answers a request much larger than the flow-control window', async () => {
    const gateway = await SessionGateway.start();
    const session = await gateway.agent().connect();
    const tooLarge = ' '.repeat(600_000);
    await expect(session.httpEndpoint().trafficPolicy(`{${tooLarge}}`).listen(false)).rejects.toMatchObject({
      errorCode: 'ERR_NGROK_9026',
    });
    await session.httpEndpoint().listen(false);
  });
});

describe('an endpoint that is already online', () => {
  it('stays with its session, and is bound once, when several sessions claim it concurrently', async () => {
    const gateway = await SessionGateway.start();
    const holder = await gateway.agent().connect();
    const wanted = ['a.localhost', 'b.localhost'];
    for (const host of wanted) await listen(holder, host, 9);
    await expect(listen(holder, 'a.localhost', 9)).rejects.toMatchObject({ errorCode: 'ERR_NGROK_334' });
    const others = await Promise.all(wanted.map(() => gateway.agent().connect()));
    const attempts = await Promise.allSettled(wanted.map((host, at) => listen(others[at] as Session, host, 9)));
    const refused = { status: 'rejected', reason: expect.objectContaining({ errorCode: 'ERR_NGROK_334' }) };
    expect(attempts).toEqual([refused, refused]);
    expect(gateway.endpoints.list().map(({ host }) => host)).toEqual(wanted);
  });

  it('moves to a new session when the old connection is half open', async () => {
    const gateway = await SessionGateway.start();
    const link = await SilentLink.to(gateway.port);
    const port = await upstream((_req, res) => res.end('handed over'));
    await listen(await gateway.agent({ port: link.port }).connect(), 'mine.localhost', port);
    link.goSilent();
    const started = performance.now();
    await listen(await gateway.agent().connect(), 'mine.localhost', port);
    // Its heartbeats would take longer.
    expect(performance.now() - started).toBeLessThan(10_000);
    expect(await gateway.get('mine.localhost')).toContain('handed over');
  });

  it('moves immediately to a new session of the same agent process', async () => {
    const gateway = await SessionGateway.start();
    const link = await SilentLink.to(gateway.port);
    const metadata = JSON.stringify({ instance: 'b1946ac9' });
    await listen(await gateway.agent({ port: link.port, metadata }).connect(), 'mine.localhost', 9);
    const another = await gateway.agent({ metadata: JSON.stringify({ instance: 'another' }) }).connect();
    await listen(another, 'theirs.localhost', 9);
    link.goSilent();
    const session = await gateway.agent({ metadata }).connect();
    expect(gateway.endpoints.list().map(({ host }) => host)).toEqual(['theirs.localhost']);
    await listen(session, 'mine.localhost', 9);
  });
});

describe('a session', () => {
  it('ends when its heartbeats stop, as after close()', async () => {
    const gateway = await SessionGateway.start();
    const session = await gateway.agent().heartbeatInterval(1).heartbeatTolerance(1).connect();
    await listen(session, 'silent.localhost', 9);
    const removed = once(gateway.server, 'removed');
    await session.close();
    await offline(gateway.endpoints, 'silent.localhost');
    // The agent was last seen that long before.
    const [{ silentMs }] = await removed;
    expect(silentMs).toBeGreaterThanOrEqual(2_000);
  });

  it('ends within 9 seconds when it does not answer a client, whatever its heartbeat', async () => {
    const gateway = await SessionGateway.start();
    const agent = await rawAgent(gateway);
    const { Extra, ...request } = auth(gateway);
    const heartbeats = { HeartbeatInterval: 600e9, HeartbeatTolerance: 600e9 };
    await agent.call(StreamType.auth, { ...request, Extra: { ...Extra, ...heartbeats } });
    const bound = { Id: '', Proto: 'https', ForwardsTo: 'x', Opts: { Domain: 'silent.localhost' }, Extra: {} };
    await agent.call(StreamType.bind, bound);
    const [endpoint] = gateway.endpoints.list();
    const began = performance.now();
    endpoint?.openStream({ address: '1.2.3.4:5', protocol: 'https' }).write('anybody there?');
    await offline(gateway.endpoints, 'silent.localhost');
    // Far below its heartbeat tolerance, also on a busy machine; the tests of SilenceWatch have the exact time.
    expect(performance.now() - began).toBeLessThan(40_000);
  });

  it('stays online while heartbeats arrive', async () => {
    const gateway = await SessionGateway.start();
    const beats: number[] = [];
    const twice = new Promise<void>((resolve) => {
      gateway
        .agent()
        .heartbeatInterval(1)
        .heartbeatTolerance(1)
        .handleHeartbeat((latency) => {
          if (beats.push(latency) === 4) resolve();
        })
        .connect();
    });
    await twice;
    expect(beats).not.toContain(null);
    expect([...gateway.server.sessions]).toHaveLength(1);
  });

  it('keeps names and ids when it reconnects', async () => {
    const gateway = await SessionGateway.start();
    const link = await SilentLink.to(gateway.port);
    const port = await upstream((_req, res) => res.end('back again'));
    const session = await gateway.agent({ port: link.port, reconnects: true }).connect();
    const listener = await listen(session, 'back.localhost', port);
    const chosen = await session.httpEndpoint().listen(false);
    const hosts = gateway.endpoints.list().map(({ host, id }) => ({ host, id }));
    link.cut();
    await offline(gateway.endpoints, 'back.localhost');
    while (gateway.endpoints.list().length < 2) await delay(10);
    expect(gateway.endpoints.list().map(({ host, id }) => ({ host, id }))).toEqual(expect.arrayContaining(hosts));
    expect(hosts.map(({ id }) => id)).toEqual([listener.id(), chosen.id()]);
    expect(await gateway.get('back.localhost')).toContain('back again');
    await listener.close();
    expect(gateway.endpoints.lookup('https', 'back.localhost')).toBeUndefined();
  });

  it('ends when the same agent opens a new connection', async () => {
    const gateway = await SessionGateway.start();
    const raw = () => rawAgent(gateway);
    const first = await raw();
    const clientId = String((await first.call(0, auth(gateway))).ClientId);
    await first.call(1, { Id: '', Proto: 'https', Opts: { Domain: 'x.localhost' } });
    const second = await raw();
    await second.call(0, auth(gateway, clientId));
    const answer = await second.call(1, { Id: 'ep_1', Proto: 'https', Opts: { Domain: 'x.localhost' } });
    expect(answer).toMatchObject({ Id: 'ep_1', URL: 'https://x.localhost:8443' });
    expect([...gateway.server.sessions].map(({ id }) => id)).toEqual([clientId]);
  });
});

it('an agent with the SDK says that there is no room for its session', async () => {
  const gateway = await SessionGateway.start(0, undefined, { limits: { sessions: 1 } });
  await gateway.agent().connect();
  await expect(gateway.agent().connect()).rejects.toThrow('ERR_NGROK_348');
});

describe('commands to an agent', () => {
  it('fail with the reason when there is no handler', async () => {
    const gateway = await SessionGateway.start();
    await gateway.agent().connect();
    const [session] = gateway.server.sessions;
    await expect(session?.commands.stop()).rejects.toThrow('has not defined a callback');
  });
});

describe('idle connections', () => {
  it('do not block agents, before or after their handshake', async () => {
    const gateway = await SessionGateway.start(0, undefined, { unauthenticated: 2, limits: { sessions: 4 } });
    const early = await gateway.agent().connect();
    const [first] = [await gateway.rawClient(), await gateway.rawClient(), await gateway.rawClient()];
    await once(first.resume(), 'close');
    const silent = Array.from({ length: 8 }, () => connect(gateway.port, '127.0.0.1').on('error', () => {}));
    onTestFinished(() => silent.forEach((socket) => void socket.destroy()));
    await once((silent[0] as Socket).resume(), 'close');
    const late = await gateway.agent().connect();
    await early.httpEndpoint().domain('early.localhost').listen(false);
    await late.httpEndpoint().domain('late.localhost').listen(false);
  });
});

describe('silent TCP connections', () => {
  it('are closed before an agent that is still in its handshake', async () => {
    const gateway = await SessionGateway.start(0, undefined, { unauthenticated: 4, limits: { sessions: 1 } });
    const slow = connect(gateway.port, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void slow.destroy());
    slow.write(Buffer.from('160301', 'hex'));
    await once(slow, 'connect');
    await gateway.rawClient();
    const crowd = Array.from({ length: 12 }, () => connect(gateway.port, '127.0.0.1').on('error', () => {}));
    onTestFinished(() => crowd.forEach((socket) => void socket.destroy()));
    let closed = false;
    slow.resume().on('close', () => {
      closed = true;
    });
    await once((crowd[7] as Socket).resume(), 'close');
    expect(closed).toBe(false);
  });
});

describe('agents that come back at once', () => {
  it('wait for their handshakes, also those beyond the limit on connections that have sent nothing', async () => {
    const gateway = await SessionGateway.start(0, undefined, { unauthenticated: 32 });
    const secured = Array.from({ length: 200 }, () => {
      const socket = connectTls({ port: gateway.port, host: '127.0.0.1', ca: gateway.caPem }).on('error', () => {});
      onTestFinished(() => void socket.destroy());
      return new Promise<boolean>((resolve) => {
        socket.once('secureConnect', () => resolve(true)).once('close', () => resolve(false));
      });
    });
    expect((await Promise.all(secured)).filter((isSecured) => !isSecured)).toEqual([]);
  });
});

describe('a crowd at another address that sends more than agents have sent', () => {
  const crowdOf = (count: number, open: () => Socket) => {
    let isOver = false;
    onTestFinished(() => {
      isOver = true;
    });
    let closed = 0;
    const one = () => {
      const socket = open().on('error', () => {});
      onTestFinished(() => void socket.destroy());
      socket.resume().once('close', () => {
        closed += 1;
        if (!isOver) setTimeout(one, 20);
      });
    };
    for (let index = 0; index < count; index++) one();
    return { isFull: () => expect.poll(() => closed, { timeout: 20_000 }).toBeGreaterThan(count) };
  };

  it('keeps none of them out by halves of a ClientHello', async () => {
    const gateway = await SessionGateway.start(0, undefined, { unauthenticated: 32, limits: { sessions: 8 } });
    const crowd = crowdOf(60, () => {
      const socket = connect({ port: gateway.port, host: '127.0.0.1', localAddress: '127.0.0.9' });
      socket.write(Buffer.from('16030102', 'hex'));
      return socket;
    });
    await crowd.isFull();
    await Promise.all(Array.from({ length: 8 }, () => gateway.agent().connect()));
    expect([...gateway.server.sessions]).toHaveLength(8);
  });

  it('keeps none of them out by halves of AUTH', async () => {
    const gateway = await SessionGateway.start(0, undefined, { unauthenticated: 8, limits: { sessions: 16 } });
    // Its AUTH comes late.
    const agent = await rawAgent(gateway);
    const crowd = crowdOf(12, () => {
      const target = { port: gateway.port, host: '127.0.0.1', localAddress: '127.0.0.9', ca: gateway.caPem };
      const socket = connectTls(target);
      const writer = new FrameWriter();
      writer.data(3, [streamPrefix(StreamType.auth)], 4, { syn: true, fin: false });
      for (const piece of writer.take()) socket.write(piece);
      return socket;
    });
    await crowd.isFull();
    expect(await agent.call(StreamType.auth, auth(gateway))).not.toHaveProperty('Error');
  });
});

describe('a hostile or broken agent', () => {
  it.each([
    ['speaks another protocol', 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'],
    ['sends an unknown frame', Buffer.from('000000f000000003', 'hex')],
    [
      'opens many streams before it has authenticated',
      Buffer.concat([3, 5, 7, 9, 11].map((id) => Buffer.from([0, 0, 4, 0x12, 0, 0, 0, id, 255, 255, 255, 255]))),
    ],
    ['sends a GOAWAY with a wrong length', Buffer.from('00000230000000000000000900000001ffff', 'hex')],
  ])('that %s loses only its own connection', async (_what, bytes) => {
    const gateway = await SessionGateway.start();
    const port = await upstream((_req, res) => res.end('still here'));
    await listen(await gateway.agent().connect(), 'fine.localhost', port);
    const socket = await gateway.rawClient();
    socket.write(bytes);
    socket.resume();
    await closeOf(socket);
    expect(await gateway.get('fine.localhost')).toContain('still here');
  });

  it.each([
    ['binds before it has authenticated', 1, '{"Proto":"https"}', /ERR_NGROK_4018$/],
    ['authenticates with a body that is not an object', 0, '[]', /ERR_NGROK_301$/],
    ['authenticates with an empty object', 0, '{}', /ERR_NGROK_109$/],
    ['sends an unknown request', 4711, '{}', /ERR_NGROK_4018$/],
    ['exceeds the size limit of AUTH', 0, `{"x":"${'y'.repeat(9000)}"}`, /ERR_NGROK_301$/],
  ])('that %s gets an answer', async (_what, type, body, error) => {
    const agent = await rawAgent(await SessionGateway.start());
    expect((await agent.callText(type, body)).Error).toMatch(error);
  });

  it('has one try to authenticate', async () => {
    const gateway = await SessionGateway.start();
    const agent = await rawAgent(gateway);
    expect((await agent.call(0, {})).Error).toMatch(/ERR_NGROK_109$/);
    agent.call(0, auth(gateway)).catch(() => {});
    await closeOf(agent.peer.socket);
    expect([...gateway.server.sessions]).toEqual([]);
  });

  it('keeps no place after the answer to a request other than AUTH', async () => {
    const gateway = await SessionGateway.start();
    const agent = await rawAgent(gateway);
    expect(await agent.call(StreamType.serverInfo, {})).toMatchObject({ Region: expect.any(String) });
    const started = performance.now();
    await closeOf(agent.peer.socket);
    expect(performance.now() - started).toBeLessThan(8000);
  });

  it('that sends thousands of wrong values gets a short answer', async () => {
    const gateway = await SessionGateway.start();
    const many = `[${'1,'.repeat(6000)}1]`;
    const unknown = await rawAgent(gateway);
    expect((await unknown.callText(0, `{"Version":${many}}`)).Error).toMatch(/ERR_NGROK_301$/);
    const agent = await rawAgent(gateway);
    await agent.call(0, auth(gateway));
    const endless = `[${'1,'.repeat(120_000)}1]`;
    const labels = `{${Array.from({ length: 4000 }, (_, at) => `"${at}=":1`).join(',')}}`;
    for (const [type, body] of [
      [1, `{"Proto":"https","Extra":{"Bindings":${endless}}}`],
      [1, `{"Proto":"https","Extra":{"Bindings":${many}}}`],
      [7, `{"Labels":${labels}}`],
    ] as const) {
      const { Error: error } = await agent.callText(type, body);
      expect(error).toMatch(/ERR_NGROK_301$/);
      expect(String(error).length).toBeLessThan(1000);
    }
    expect((await agent.call(1, { Id: '', Proto: 'https', Opts: { Domain: 'fine.localhost' } })).Error).toBeUndefined();
  });

  it('that sends an unknown request after authentication gets an answer', async () => {
    const { gateway, agent } = await rawSession();
    expect((await agent.call(11, {})).Error).toMatch(/ERR_NGROK_332$/);
    expect((await agent.call(2, { Id: 'ep_unknown' })).Error).toBeUndefined();
    expect((await agent.call(0, auth(gateway))).Error).toMatch(/ERR_NGROK_109$/);
  });

  it('cannot unbind endpoints of another session', async () => {
    const { gateway, agent } = await rawSession();
    await agent.call(1, { Id: 'ep_1', Proto: 'https', Opts: { Domain: 'x.localhost' } });
    const other = await rawAgent(gateway);
    await other.call(0, auth(gateway));
    await other.call(2, { Id: 'ep_1' });
    expect(gateway.endpoints.lookup('https', 'x.localhost')).toBeDefined();
  });

  it('cannot take the ids of another one’s session and endpoint', async () => {
    const gateway = await SessionGateway.start();
    const agent = await rawAgent(gateway);
    const clientId = String((await agent.call(0, auth(gateway))).ClientId);
    const { Id: id } = await agent.call(1, { Id: '', Proto: 'https', Opts: { Domain: 'x.localhost' } });
    const { store } = gateway;
    const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
    const other = await rawAgent(gateway);
    const answer = await other.call(0, { ...auth(gateway, clientId), Extra: { AuthToken: token } });
    expect(answer.ClientId).toMatch(/^ts_[0-9A-Za-z]{27}$/);
    expect(answer.ClientId).not.toBe(clientId);
    await other.call(1, { Id: id, Proto: 'https', Opts: { Domain: 'y.localhost' } });
    const [first, second] = gateway.endpoints.list();
    expect(first?.publicId).toBe(id);
    expect(second?.publicId).toMatch(/^ep_[0-9A-Za-z]{27}$/);
    expect(second?.publicId).not.toBe(id);
  });

  it('cannot bind two endpoints with one id, even concurrently, and leaves none behind', async () => {
    const { gateway, agent } = await rawSession();
    const bind = (host: string) => agent.call(1, { Id: 'ep_1', Proto: 'https', Opts: { Domain: host } });
    const answers = await Promise.all([bind('x.localhost'), bind('y.localhost')]);
    expect(answers[0]).toMatchObject({ Id: 'ep_1', URL: 'https://x.localhost:8443' });
    expect(answers[1]).toEqual({ Error: expect.stringContaining('ERR_NGROK_301') });
    for (const session of gateway.server.sessions) session.end(new Error('over'));
    expect(gateway.endpoints.list()).toEqual([]);
  });

  it('cannot exceed the endpoint limit, including endpoints being bound', async () => {
    const { agent } = await rawSession({ limits: { endpoints: 2 } });
    const policy = { TrafficPolicy: '{"on_http_request":[{"actions":[{"type":"deny"}]}]}' };
    const answers = await Promise.all([1, 2, 3].map(() => agent.call(1, { Proto: 'https', Opts: policy })));
    expect(answers.filter(({ Error: error }) => error === undefined)).toHaveLength(2);
    expect(answers[2]?.Error).toMatch(/^endpoint limit reached: one session can have 2 endpoints\s+ERR_NGROK_350$/);
    expect((await agent.call(7, { Labels: { a: 'b' } })).Error).toMatch(/ERR_NGROK_350$/);
    await agent.call(2, { Id: answers[0]?.Id });
    expect((await agent.call(7, { Labels: { a: 'b' } })).Error).toBeUndefined();
  });

  it('cannot exceed the option limit of its authtoken across sessions', async () => {
    const gateway = await SessionGateway.start(0, undefined, { limits: { optionBytes: 14_000 } });
    const [first, second] = [await rawAgent(gateway), await rawAgent(gateway)];
    await first.call(0, auth(gateway));
    await second.call(0, auth(gateway));
    const large = { Proto: 'https', Opts: {}, Extra: { Metadata: 'm'.repeat(4000) } };
    const { Id: id } = await first.call(1, large);
    expect((await second.call(1, large)).Error).toMatch(/14000 bytes.*ERR_NGROK_350$/s);
    expect((await second.call(7, { Labels: { a: 'b' }, Metadata: 'm'.repeat(4000) })).Error).toMatch(/ERR_NGROK_350$/);
    const { store } = gateway;
    const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
    const other = await rawAgent(gateway);
    await other.call(0, { ...auth(gateway), Extra: { AuthToken: token } });
    expect((await other.call(1, large)).Error).toBeUndefined();
    // A policy counts with the memory that it takes when it is compiled.
    const rule = { expressions: [`1${'+1'.repeat(60)} > 2`], actions: [{ type: 'deny' }] };
    const policy = { TrafficPolicy: JSON.stringify({ on_http_request: [rule] }) };
    expect((await other.call(1, { Proto: 'https', Opts: policy, Extra: {} })).Error).toMatch(/ERR_NGROK_350$/);
    // Refused and ended endpoints take no allowance.
    for (const _ of [1, 2, 3]) await second.call(1, { ...large, Opts: { Domain: 'no_name.localhost' } });
    await first.call(2, { Id: id });
    expect((await second.call(1, large)).Error).toBeUndefined();
  });

  it('cannot take all session slots by reconnecting often', async () => {
    const gateway = await SessionGateway.start(0, undefined, { limits: { sessions: 3 } });
    const agents = [await rawAgent(gateway), await rawAgent(gateway), await rawAgent(gateway)];
    for (const agent of agents) expect((await agent.call(0, auth(gateway))).Error).toBeUndefined();
    const refused = await (await rawAgent(gateway)).call(0, auth(gateway));
    expect(refused).toEqual({ Error: expect.stringMatching(/3 sessions.*ERR_NGROK_348$/s), RetryAfterS: 30 });
    const { store } = gateway;
    const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
    const asOther = { ...auth(gateway), Extra: { AuthToken: token } };
    expect((await (await rawAgent(gateway)).call(0, asOther)).Error).toBeUndefined();
    expect((await (await rawAgent(gateway)).call(0, asOther)).Error).toMatch(/ERR_NGROK_348$/);
    expect((await (await rawAgent(gateway)).call(0, auth(gateway))).Error).toMatch(/ERR_NGROK_348$/);
    expect([...gateway.server.sessions]).toHaveLength(3);
  });

  it('can spell members like the Go SDK', async () => {
    const gateway = await SessionGateway.start();
    const agent = await rawAgent(gateway);
    const extra = { Authtoken: gateway.authtoken, HeartbeatInterval: 1e10, HeartbeatTolerance: 15e9 };
    expect(
      await agent.callText(0, `${JSON.stringify({ Version: ['2'], ClientId: '', Extra: extra })}\n`),
    ).toMatchObject({
      Version: '2',
    });
    const opts = { URL: 'https://go.localhost', Domain: '', TrafficPolicy: '', Compression: null };
    expect(await agent.call(1, { Id: '', Proto: 'https', Opts: opts, Extra: { Bindings: null } })).toMatchObject({
      URL: 'https://go.localhost:8443',
    });
  });
});

it('an unexpected error about one connection closes that one, and no other', async () => {
  const gateway = await SessionGateway.start();
  const { accept } = gateway.server;
  gateway.server.accept = () => {
    throw new Error('a bug');
  };
  await closeOf((await gateway.rawClient()).resume());
  gateway.server.accept = accept;
  await gateway.agent().connect();
});

it('the session server renews its certificate when the clock is set back before its issue date, and again when that failed', async () => {
  const dataDir = await makeDataDir();
  onTestFinished(() => rm(dataDir, { recursive: true }));
  vi.useFakeTimers({ toFake: ['Date', 'setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const right = Date.now();
  vi.setSystemTime(right + 10 * 365 * 86_400_000);
  const pair = await selfSigned();
  const issuedAt: number[] = [];
  const issueCertificate = async () => {
    issuedAt.push(Date.now());
    if (issuedAt.length === 3) throw new Error('no space left on device');
    return { ...pair, renewAt: Date.now() + 86_400_000 };
  };
  const { server } = await SessionGateway.start(0, dataDir, { issueCertificate });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(issuedAt).toHaveLength(1);
  vi.setSystemTime(right);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(issuedAt).toEqual([expect.any(Number), right + 60_000]);
  // The CA has changed, but the disk is full.
  await expect(server.renew()).rejects.toThrow('no space');
  await vi.advanceTimersByTimeAsync(120_000);
  expect(issuedAt).toHaveLength(4);
});

/** Node's HTTP client over streams of an endpoint, with keep-alive. */
function agentOver(gateway: SessionGateway, host: string): Agent {
  class TunnelAgent extends Agent {
    override createConnection(): Duplex {
      const endpoint = gateway.endpoints.lookup('https', host);
      if (!endpoint) throw new Error(`${host} is offline`);
      return endpoint.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
    }
    // Only sockets have these.
    override keepSocketAlive(): boolean {
      return true;
    }
    override reuseSocket(): void {}
  }
  const agent = new TunnelAgent({ keepAlive: true, maxSockets: 300, maxFreeSockets: 300 });
  onTestFinished(() => agent.destroy());
  return agent;
}

async function send(agent: Agent, { body, ...options }: RequestOptions & { body?: Buffer } = {}) {
  const req = request({ agent, ...options });
  req.end(body);
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of res) chunks.push(chunk as Buffer);
  return { status: res.statusCode, body: Buffer.concat(chunks) };
}
