import { EventEmitter } from 'node:events';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { ByteChannel, ByteReceiver } from '../../../../src/agent-protocol/byte-channel.ts';
import type { ExchangeEvents, OutgoingRequest } from '../../../../src/gateway/edge/upstreams/upstream-link.ts';
import { UpstreamPool } from '../../../../src/gateway/edge/upstreams/upstream-pool.ts';
import {
  type ClientInfo,
  type GatewayEndpoint,
  StreamsExhausted,
} from '../../../../src/gateway/endpoints/online-endpoint.ts';

const LIMITS = { responseTimeout: 60_000, keepAlive: 10_000, maxHeaderSize: 65_536, streamWait: 5000 };
const FROM: ClientInfo = { address: '192.0.2.1:1', protocol: 'http' };
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const LATE = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil';

/** A stream to the upstream that the test plays. */
class PlayedChannel implements ByteChannel {
  receiver: ByteReceiver = { onData() {}, onEnd() {} };
  aborted = false;
  isCrowded = false;
  departures?: number;
  users: string[] = [];
  write(): boolean {
    return true;
  }
  end(): void {}
  pause(): void {}
  resume(): void {}
  usedBy(client: string): void {
    this.users.push(client);
  }
  abort(): void {
    this.aborted = true;
  }
  answer(text: string): void {
    this.receiver.onData(Buffer.from(text));
  }
}

/** A pool whose clock the test moves. */
function setUp({ streams = Number.POSITIVE_INFINITY } = {}) {
  const channels: PlayedChannel[] = [];
  const openChannel = () => {
    if (channels.filter(({ aborted }) => !aborted).length >= streams) throw new StreamsExhausted();
    const channel = new PlayedChannel();
    channels.push(channel);
    return channel;
  };
  const pool = new UpstreamPool({ openChannel } as Partial<GatewayEndpoint> as GatewayEndpoint, LIMITS);
  // Days, so that no time counts from the start of the process.
  let now = 5 * 86_400_000;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  onTestFinished(() => {
    clock.mockRestore();
    pool.destroy(new Error('test over'));
  });
  const pass = (ms: number) => {
    now += ms;
  };
  return { pool, channels, pass };
}

type Scene = ReturnType<typeof setUp>;

interface Sent {
  headers?: string[];
  maxConnections?: number;
}

function send({ pool }: Scene, method = 'GET', from = FROM, { headers = [], maxConnections }: Sent = {}) {
  const result = { body: '', failed: null as Error | null };
  const connection = pool.take(from, method !== 'POST');
  const user: ExchangeEvents = {
    onSent() {},
    onDrain() {},
    onInterim() {},
    onHead() {},
    onBody: (piece) => {
      result.body += piece;
    },
    onComplete() {},
    onUpgrade() {},
    onStalled() {},
    onFailed: (error) => {
      result.failed = error;
    },
  };
  const request = {
    method,
    target: '/',
    headers: ['Host', 'a', ...headers],
    ...(maxConnections !== undefined && { upstream: { max_connections: maxConnections } }),
  } as Partial<OutgoingRequest['request']>;
  const outgoing = { request, body: null, awaitsContinue: false, trailers: false, upgrade: undefined };
  connection.send(outgoing as OutgoingRequest, user);
  return result;
}

/** Two turns of the event loop, after which a connection can serve again. */
async function quietTurn(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);
}

/** A scene in which the first stream has answered, and can be reused. */
async function withIdleStream(options = {}) {
  const scene = setUp(options);
  send(scene);
  const [first] = scene.channels as [PlayedChannel];
  first.answer(OK);
  await quietTurn();
  return { ...scene, first };
}

describe('a stream to an upstream', () => {
  it('serves again only after the event loop has read once more', async () => {
    const scene = setUp();
    send(scene);
    scene.channels[0]?.answer(OK);
    send(scene);
    expect(scene.channels).toHaveLength(2);
    await quietTurn();
    send(scene);
    expect(scene.channels).toHaveLength(2);
  });

  it.each([
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'],
    ['GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['GET', 'HTTP/1.1 304 Not Modified\r\n\r\n'],
  ])('serves again only after a quiet time when the response to %s is %j', async (method, answer) => {
    vi.useFakeTimers({ toFake: ['setTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const scene = setUp();
    send(scene, method);
    scene.channels[0]?.answer(answer);
    await quietTurn();
    send(scene);
    expect(scene.channels).toHaveLength(2);
    vi.advanceTimersByTime(50);
    send(scene);
    expect(scene.channels).toHaveLength(2);
  });

  it('fails when bytes arrive before the next request has left: they belong to no response', async () => {
    const scene = await withIdleStream();
    scene.first.departures = 7;
    const result = send(scene);
    scene.first.answer(LATE);
    expect([result.body, result.failed?.name, scene.first.aborted]).toEqual(['', 'ConnectionLost', true]);
  });

  it('takes a response that arrives in the turn in which the request has left', async () => {
    const scene = await withIdleStream();
    scene.first.departures = 7;
    const result = send(scene);
    scene.first.departures = 8;
    scene.first.answer(OK);
    expect([result.body, result.failed, scene.first.aborted]).toEqual(['ok', null, false]);
  });
});

describe('an upstream that has sent late bytes', () => {
  it.each<[string, (scene: Scene & { first: PlayedChannel }) => unknown]>([
    ['on an idle stream', ({ first }) => first.answer(LATE)],
    [
      'together with a response',
      async (scene) => {
        send(scene);
        await quietTurn();
        scene.first.answer(OK + LATE);
      },
    ],
    [
      'that are not HTTP, while a response is due',
      async (scene) => {
        send(scene);
        await quietTurn();
        scene.first.answer('a body\r\n\r\n');
      },
    ],
  ])('%s gets a new stream for every request, for a minute', async (_when, misbehave) => {
    const scene = await withIdleStream();
    await misbehave(scene);
    for (let count = 2; count < 5; count++) {
      send(scene);
      expect(scene.channels).toHaveLength(count);
      scene.channels.at(-1)?.answer(OK);
      await quietTurn();
    }
    scene.pass(60_000);
    send(scene);
    scene.channels.at(-1)?.answer(OK);
    await quietTurn();
    send(scene);
    expect(scene.channels).toHaveLength(5);
  });
});

describe('an upstream that has closed a stream early', () => {
  it.each<[string, (scene: Scene & { first: PlayedChannel }) => void]>([
    ['while it was idle', ({ first }) => first.receiver.onEnd()],
    [
      'as a request arrived',
      (scene) => {
        send(scene);
        scene.first.receiver.onEnd();
      },
    ],
  ])('%s gets requests that cannot be repeated on new streams', async (_when, close) => {
    const scene = await withIdleStream();
    scene.pass(300);
    close(scene);
    send(scene);
    scene.channels.at(-1)?.answer(OK);
    await quietTurn();
    expect(scene.channels).toHaveLength(2);
    expect(send(scene, 'POST').failed).toBeNull();
    expect(scene.channels).toHaveLength(3);
    send(scene);
    expect(scene.channels).toHaveLength(3);
  });

  it('counts for the client of the request that it carries', async () => {
    const scene = await withIdleStream();
    send(scene, 'GET', { address: '[2001:db8::1]:2', protocol: 'http' });
    expect(scene.first.users).toEqual(['2001:db8::1']);
  });

  it('serves again only when what is on its way beside it would not delay the request', async () => {
    const scene = await withIdleStream();
    scene.first.isCrowded = true;
    send(scene);
    expect(scene.channels).toHaveLength(2);
    scene.first.isCrowded = false;
    const next = send(scene);
    await quietTurn();
    scene.first.answer(OK);
    expect([scene.channels.length, next.body]).toEqual([2, 'ok']);
  });

  it('serves beside bulk when the agent has no more streams', async () => {
    const scene = await withIdleStream({ streams: 1 });
    scene.first.isCrowded = true;
    const next = send(scene);
    await quietTurn();
    scene.first.answer(OK);
    expect([scene.channels.length, next.body]).toEqual([1, 'ok']);
  });

  it('gives up an idle stream when the agent has no more', async () => {
    const scene = await withIdleStream({ streams: 2 });
    send(scene);
    scene.first.receiver.onEnd();
    send(scene);
    send(scene);
    for (const channel of scene.channels.slice(1)) channel.answer(OK);
    await quietTurn();
    const posted = send(scene, 'POST');
    await expect.poll(() => scene.channels.length).toBe(4);
    scene.channels.at(-1)?.answer(OK);
    expect(posted.body).toBe('ok');
  });
});

describe('an upstream that signs in connections', () => {
  const SIGNED_OUT = 'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nContent-Length: 2\r\n\r\nno';
  const client = (port: number) => {
    const connection = new EventEmitter();
    return { ...FROM, address: `192.0.2.1:${port}`, connection } as ClientInfo & { connection: EventEmitter };
  };

  it.each([
    ['Authorization of a request', ['Authorization', 'NTLM TlRMTVNTUAAB'], OK],
    ['Proxy-Authorization of a request', ['proxy-authorization', 'negotiate YII'], OK],
    ['WWW-Authenticate of a response', [], SIGNED_OUT],
  ])('serves one client by a connection that has had %s', async (_what, headers, answer) => {
    const scene = setUp();
    const [jo, ann] = [client(1), client(2)];
    send(scene, 'GET', jo, { headers });
    scene.channels[0]?.answer(answer);
    await quietTurn();
    send(scene, 'GET', ann);
    expect(scene.channels).toHaveLength(2);
    scene.pass(2_000);
    const posted = send(scene, 'POST', jo);
    await quietTurn();
    scene.channels[0]?.answer(OK);
    expect([scene.channels.length, posted.body]).toEqual([2, 'ok']);
  });

  it.each([
    ['without credentials', []],
    ['with credentials', ['Authorization', 'NTLM b']],
  ])(
    'answers the requests of a client one after another, %s, as HTTP/2 sends several at a time',
    async (_, headers) => {
      const scene = setUp();
      const jo = client(1);
      send(scene, 'GET', jo, { headers: ['Authorization', 'NTLM a'] });
      const next = [send(scene, 'GET', jo, { headers }), send(scene, 'GET', jo, { headers })];
      for (let answered = 0; answered < 3; answered++) {
        scene.channels[0]?.answer(OK);
        await quietTurn();
      }
      expect([scene.channels.length, ...next.map(({ body }) => body)]).toEqual([1, 'ok', 'ok']);
    },
  );

  it('has the connection closed with that of its client, whose address may be that of another one next', async () => {
    const scene = setUp();
    const jo = client(1);
    send(scene, 'GET', jo, { headers: ['Authorization', 'NTLM a'] });
    scene.channels[0]?.answer(OK);
    await quietTurn();
    jo.connection.emit('close');
    expect(scene.channels[0]?.aborted).toBe(true);
  });

  it('lets others reuse connections with usual credentials', async () => {
    const scene = setUp();
    send(scene, 'GET', client(1), { headers: ['Authorization', 'Basic YTpi'] });
    scene.channels[0]?.answer('HTTP/1.1 401 No\r\nWWW-Authenticate: Digest realm="NTLM"\r\nContent-Length: 0\r\n\r\n');
    await quietTurn();
    send(scene, 'GET', client(2));
    expect(scene.channels).toHaveLength(1);
  });
});

describe('an upstream that bears few connections', () => {
  it('has max_connections at most, and answers further requests one after another', async () => {
    const scene = setUp();
    const answers = Array.from({ length: 5 }, () => send(scene, 'GET', FROM, { maxConnections: 2 }));
    for (let round = 0; round < 3; round++) {
      for (const channel of scene.channels) if (answers.some(({ body }) => body === '')) channel.answer(OK);
      await quietTurn();
    }
    expect([scene.channels.length, ...answers.map(({ body }) => body)]).toEqual([2, 'ok', 'ok', 'ok', 'ok', 'ok']);
  });

  it('loses its idle connections while a new one has no answer, unless that does not help', async () => {
    const scene = await withIdleStream();
    // On the idle stream, so that the next one is new.
    send(scene);
    const second = send(scene);
    scene.pass(300);
    await quietTurn();
    scene.first.answer(OK);
    await quietTurn();
    expect(scene.first.aborted).toBe(true);
    scene.channels[1]?.answer(OK);
    expect(second.body).toBe('ok');
    await quietTurn();
    // This one hangs whatever is closed.
    send(scene);
    const hung = send(scene);
    scene.pass(300);
    await quietTurn();
    scene.channels[1]?.answer(OK);
    await quietTurn();
    expect(scene.channels[1]?.aborted).toBe(true);
    for (let at = 3; at < 5; at++) {
      scene.pass(1_100);
      await quietTurn();
      send(scene);
      await quietTurn();
      scene.channels.at(-1)?.answer(OK);
      await quietTurn();
    }
    expect([scene.channels.length, hung.body, scene.channels.at(-1)?.aborted]).toEqual([4, '', false]);
  });

  it('gets no more connections than worked when it has refused one, for a minute', async () => {
    // The time of a turn may still be that of the test before.
    await quietTurn();
    const scene = setUp();
    send(scene);
    send(scene);
    scene.channels[1]?.receiver.onClosed?.(new Error('reset'));
    expect(scene.pool.refusedNew()).toBe(true);
    const waiting = send(scene);
    expect(scene.channels).toHaveLength(2);
    scene.channels[0]?.answer(OK);
    await quietTurn();
    scene.channels[0]?.answer(OK);
    expect([scene.channels.length, waiting.body]).toEqual([2, 'ok']);
    scene.pass(60_000);
    await quietTurn();
    send(scene);
    send(scene);
    expect(scene.channels).toHaveLength(3);
  });
});
