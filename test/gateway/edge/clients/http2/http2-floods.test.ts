import { once } from 'node:events';
import { createServer as createHttp1Server } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import type { Server } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { EdgeCounters } from '../../../../../src/gateway/metrics/edge-counters.ts';
import { type DirectEndpoint, TestEdge } from '../../../../support/edge.ts';
import { askHttp2, openHttp2 } from '../../../../support/http2-client.ts';
import {
  block,
  Code,
  type Fields,
  Flag,
  Frame,
  frame,
  RawHttp2,
  requestsTo,
  setting,
  uint32,
} from '../../../../support/raw-http2.ts';

const HOST = 'flood.localhost';
const ALL = Flag.endStream | Flag.endHeaders;
const { fields: FIELDS, get, set } = requestsTo(HOST);

let edge: TestEdge;
let endpoint: DirectEndpoint;
let reached = 0;
const open: RawHttp2[] = [];

beforeAll(async () => {
  edge = await TestEdge.start();
  endpoint = await edge.serve(
    HOST,
    (req, res) => {
      reached += 1;
      if (req.url === '/') res.end('ok');
    },
    { protocol: 'https' },
  );
});
afterEach(() => {
  for (const raw of open.splice(0)) raw.socket.destroy();
  reached = 0;
});
afterAll(() => edge.close());

async function connect(to = edge): Promise<RawHttp2> {
  const raw = await RawHttp2.open(to, HOST);
  open.push(raw);
  return raw;
}

const times = (count: number, make: (at: number) => Buffer) => Array.from({ length: count }, (_, at) => make(at));

/** Sends repeatedly until the gateway closes the connection. */
async function flood(raw: RawHttp2, frames: (round: number) => Buffer[], rounds: number): Promise<void> {
  for (let round = 0; round < rounds && !raw.socket.destroyed; round++) {
    // Called with an error, too, when the gateway closes the connection meanwhile.
    await new Promise((sent) => raw.socket.write(Buffer.concat(frames(round)), sent));
  }
  await raw.closed();
}

/** A connection whose peer answers the first bytes and then stops reading. */
function answeringUnread(): Duplex {
  return new Duplex({
    read() {},
    write(_chunk, _encoding, done) {
      this.push('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
      this._write = () => {};
      done();
    },
  });
}

describe('a client is disconnected when it', () => {
  it('resets requests rapidly, and few of them reach the upstream', async () => {
    const raw = await connect();
    const request = block(FIELDS);
    const pair = (round: number, at: number) => {
      const stream = 1 + 2 * (round * 50 + at);
      return Buffer.concat([frame(Frame.headers, ALL, stream, request), frame(Frame.reset, 0, stream, uint32(8))]);
    };
    await flood(raw, (round) => times(50, (at) => pair(round, at)), 100);
    expect(reached).toBeLessThan(1000);
  });

  it.each<[string, () => Buffer]>([
    ['PING', () => frame(Frame.ping, 0, 0, '12345678')],
    ['SETTINGS', () => frame(Frame.settings, 0, 0, setting(3, 1))],
    ['empty DATA', () => frame(Frame.data, 0, 1)],
  ])('sends endless %s frames', async (_what, make) => {
    const raw = await connect();
    const fields: Fields = [[':method', 'POST'], ...FIELDS.slice(1, 3), [':path', '/waits']];
    raw.send(frame(Frame.headers, Flag.endHeaders, 1, block(fields)));
    await flood(raw, () => times(100, make), 500);
  });

  it('sends endless headers', async () => {
    const raw = await connect();
    raw.send(frame(Frame.headers, Flag.endStream, 1, block(FIELDS)));
    await flood(raw, () => [frame(Frame.continuation, 0, 1, block([['x-a', 'a'.repeat(10_000)]]))], 500);
    expect(reached).toBe(0);
  });

  it('expands few bytes to large headers', async () => {
    const raw = await connect();
    // Indexed once, and referred to a thousand times: 4 MB (RFC 7541, 7.3).
    const entry = Buffer.concat([Buffer.from([0x40]), block([['x-a', 'a'.repeat(4000)]]).subarray(1)]);
    raw.send(frame(Frame.headers, ALL, 1, Buffer.concat([block(FIELDS), entry, Buffer.alloc(1000, 0xbe)])));
    expect(await raw.outcome(1)).toEqual({ reset: Code.calm });
    expect(reached).toBe(0);
  });
});

describe('limits', () => {
  it('reject concurrent requests above the agreed maximum, and serve the others', async () => {
    const limited = await TestEdge.start({ httpLimits: { streams: 3 } });
    await limited.serve(HOST, (_req, res) => setTimeout(() => res.end('ok'), 50), { protocol: 'https' });
    const raw = await connect(limited);
    raw.send(...times(5, (at) => get(1 + 2 * at)));
    const outcomes = await Promise.all([1, 3, 5, 7, 9].map((stream) => raw.outcome(stream)));
    expect(outcomes.filter((outcome) => outcome && 'answered' in outcome)).toHaveLength(3);
    await limited.close();
  });

  it('close connections without a request, even if bytes trickle in', async () => {
    const limited = await TestEdge.start({ httpLimits: { headersTimeout: 100 } });
    await limited.serve(HOST, (_req, res) => res.end('ok'), { protocol: 'https' });
    const raw = await connect(limited);
    const timer = setInterval(() => raw.send(frame(Frame.ping, 0, 0, '12345678')), 20);
    await raw.closed();
    clearInterval(timer);
    await limited.close();
  });

  it('close idle connections, but none that waits for a response', async () => {
    const limited = await TestEdge.start({ httpLimits: { keepAliveTimeout: 100 } });
    await limited.serve(HOST, (_req, res) => setTimeout(() => res.end('ok'), 300), { protocol: 'https' });
    const session = await openHttp2(limited, HOST);
    expect((await askHttp2(session, {})).body).toBe('ok');
    if (!session.destroyed) await once(session, 'close');
    await limited.close();
  });

  it('close idle connections whose client answers no PING', async () => {
    const limited = await TestEdge.start({ httpLimits: { idleTimeout: 100, pingTimeout: 100 } });
    await limited.serve(HOST, () => {}, { protocol: 'https' });
    const raw = await connect(limited);
    raw.send(get(1));
    await raw.closed();
    await limited.close();
  });

  it('keep idle connections whose client answers PINGs', async () => {
    const limited = await TestEdge.start({ httpLimits: { idleTimeout: 100 } });
    await limited.serve(HOST, (_req, res) => setTimeout(() => res.end('ok'), 500), { protocol: 'https' });
    const session = await openHttp2(limited, HOST);
    const asked = once(session, 'ping');
    expect((await askHttp2(session, {})).body).toBe('ok');
    await asked;
    session.destroy();
    await limited.close();
  });

  it('allow a client to take the first bytes of a response late', async () => {
    const limited = await TestEdge.start({ httpLimits: { progressTimeout: 4000, idleTimeout: 4000 } });
    await limited.serve(HOST, (_req, res) => res.end('ok'), { protocol: 'https' });
    const raw = await connect(limited);
    raw.send(frame(Frame.settings, 0, 0, setting(4, 0)), get(1));
    expect(await raw.outcome(1)).toEqual({ answered: true });
    // Deadlines are checked once a second here.
    await delay(1500);
    raw.send(frame(Frame.windowUpdate, 0, 1, uint32(100)));
    expect(await raw.next(({ type }) => type === Frame.data)).toMatchObject({ payload: Buffer.from('ok') });
    await limited.close();
  });

  it.each<[string, Fields]>([
    ['of unknown length', []],
    ['of known length', [['content-length', '100000']]],
  ])('reject a request whose body, %s, stops or trickles', async (_what, more) => {
    const limited = await TestEdge.start({ httpLimits: { progressTimeout: 200 } });
    await limited.serve(HOST, (req) => req.resume(), { protocol: 'https' });
    const raw = await connect(limited);
    const fields: Fields = [[':method', 'POST'], ...FIELDS.slice(1), ...more];
    const grpc: Fields = [...fields.slice(0, 4), ['content-type', 'application/grpc']];
    raw.send(frame(Frame.headers, Flag.endHeaders, 1, block(grpc)));
    raw.send(frame(Frame.headers, Flag.endHeaders, 3, block(fields)));
    const timer = setInterval(() => raw.send(frame(Frame.data, 0, 3, 'a')), 50);
    expect(await raw.outcome(3)).toEqual({ answered: true });
    expect(await raw.next(({ stream, type }) => stream === 3 && type === Frame.data)).toBeTruthy();
    clearInterval(timer);
    raw.send(frame(Frame.ping, 0, 0, '12345678'));
    await raw.next(({ type, flags }) => type === Frame.ping && flags === Flag.ack);
    // Either side of a gRPC call may speak at any time.
    expect(await Promise.race([raw.outcome(1), delay(300, 'open')])).toBe('open');
    await limited.close();
  });

  it('close a connection whose client leaves after an error that makes nghttp2 stop reading', async () => {
    const limited = await TestEdge.start({ httpLimits: { progressTimeout: 100, pingTimeout: 100 } });
    const serving = await limited.serve(HOST, () => {}, { protocol: 'https' });
    const raw = await connect(limited);
    raw.send(get(1));
    await expect.poll(() => serving.streams.length).toBe(1);
    raw.send(frame(Frame.data, 0, 1, 'more'));
    await raw.end();
    raw.socket.destroy();
    await expect.poll(() => serving.streams[0]?.destroyed).toBe(true);
    await limited.close();
  });

  it('end unread responses despite PINGs, but none that is merely idle', async () => {
    const limited = await TestEdge.start({ httpLimits: { progressTimeout: 1_500 } });
    let finish = () => {};
    const serving = await limited.serve(
      HOST,
      (req, res) => {
        if (req.url === '/') res.end(Buffer.alloc(4_000_000));
        else res.write('begun');
        finish = () => res.end();
      },
      { protocol: 'https' },
    );
    const raw = await connect(limited);
    const timer = setInterval(() => raw.send(frame(Frame.ping, 0, 0, '12345678')), 20);
    raw.send(frame(Frame.windowUpdate, 0, 0, uint32(1_000_000)), get(1));
    expect(await raw.outcome(1)).toEqual({ answered: true });
    raw.send(frame(Frame.headers, ALL, 3, block([...FIELDS.slice(0, 3), [':path', '/events']])));
    expect(await raw.outcome(3)).toEqual({ answered: true });
    expect(await raw.outcome(1)).toEqual({ reset: Code.internal });
    await expect.poll(() => serving.streams[0]?.destroyed).toBe(true);
    finish();
    await raw.next(({ stream, flags, type }) => stream === 3 && type === Frame.data && flags === Flag.endStream);
    expect(raw.socket.destroyed).toBe(false);
    clearInterval(timer);
    await limited.close();
  });

  it.each<[string, (() => Server) | null]>([
    ['HTTP/1.1', null],
    ['HTTP/2', () => createHttp2Server().on('stream', (stream) => stream.on('error', () => {}).respond())],
  ])('end requests whose %s upstream has started to answer and stops reading', async (_what, makeServer) => {
    const limited = await TestEdge.start({ responseTimeout: 1_500 });
    const server = makeServer?.() ?? createHttp1Server();
    const serving = await limited.serveRaw(HOST, server, { protocol: 'https' });
    if (makeServer) serving.http2Upstream = true;
    else serving.open = () => answeringUnread();
    const session = await openHttp2(limited, HOST);
    const stream = session.request({ ':method': 'POST' }).on('error', () => {});
    stream.write(Buffer.alloc(1_000_000));
    const closed = new Promise((resolve) => stream.once('close', resolve));
    await once(stream, 'response');
    await closed;
    expect(stream.rstCode).toBe(Code.internal);
    session.destroy();
    await limited.close();
  });

  it('close plain connections whose headers do not arrive in time', async () => {
    const limited = await TestEdge.start({ httpLimits: { headersTimeout: 100 } });
    const socket = limited.connect();
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.write('GET / HTTP/1.1\r\nHost: ');
    const timer = setInterval(() => socket.write('a'), 20);
    await closed;
    clearInterval(timer);
    await limited.close();
  });
});

it('many requests at a time leave turns to other connections', async () => {
  let [turn, ticking] = [0, setImmediate(() => {})];
  const tick = () => {
    turn += 1;
    ticking = setImmediate(tick);
  };
  tick();
  const turns: number[] = [];
  const counters = new EdgeCounters();
  counters.responded = () => turns.push(turn);
  const busy = await TestEdge.start({ counters });
  await busy.serve(HOST, () => {}, { protocol: 'https' });
  const raw = await connect(busy);
  const misdirected = block(set(':authority', 'offline.localhost'));
  raw.send(...times(80, (at) => frame(Frame.headers, ALL, 1 + 2 * at, misdirected)));
  await expect.poll(() => turns.length).toBe(80);
  clearImmediate(ticking);
  expect(new Set(turns).size).toBeGreaterThanOrEqual(10);
  await busy.close();
});

it('serves other clients meanwhile', async () => {
  const raw = await connect();
  const session = await openHttp2(edge, HOST);
  const flooding = flood(raw, () => times(100, () => frame(Frame.ping, 0, 0, '12345678')), 500);
  expect((await askHttp2(session, {})).body).toBe('ok');
  await flooding;
  expect((await askHttp2(session, {})).body).toBe('ok');
  session.destroy();
  expect(endpoint.streams.length).toBeGreaterThan(0);
});
