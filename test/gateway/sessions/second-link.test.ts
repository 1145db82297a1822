import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { MOST_LINKS } from '../../../src/agent-protocol/link-bundle.ts';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import { partHead } from '../../../src/agent-protocol/stream-parts.ts';
import { AgentMemory } from '../../../src/gateway/sessions/agent-limits.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { closeOf, settle, until } from '../../support/until.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

type RawAgent = Awaited<ReturnType<typeof rawAgent>>;

/** What agents with a second link announce. */
const BOTH = { StreamWindow: 16_777_216, SecondLink: true };
const KIB = 1024;

/** A session of a raw agent, and how to attach further connections to it. */
async function session(gateway: SessionGateway, announced: object = BOTH, token = gateway.authtoken) {
  const agent = await rawAgent(gateway);
  const { Extra, ...request } = auth(gateway);
  const answer = await agent.call(StreamType.auth, { ...request, Extra: { ...Extra, AuthToken: token, ...announced } });
  const ticket = () => agent.call(StreamType.linkTicket, {});
  const request2 = async () => ({
    AuthToken: token,
    SessionId: String(answer.ClientId),
    Ticket: String((await ticket()).Ticket),
  });
  const attached = async () => {
    const link = await rawAgent(gateway);
    expect(await link.call(StreamType.link, await request2())).toEqual({});
    return link;
  };
  return { agent, extra: answer.Extra as Record<string, unknown>, ticket, request: request2, attached };
}

async function otherToken({ store }: SessionGateway): Promise<string> {
  return (await store.database.write(() => issueCredential(store, { acl: [] }))).token;
}

it.each([
  ['nothing', {}],
  ['the windows only, as older agents do', { StreamWindow: 16_777_216 }],
  ['the second link without windows', { SecondLink: true }],
  ['something else', { ...BOTH, SecondLink: 'yes' }],
])('an agent that announces %s has a session without tickets', async (_what, announced) => {
  const gateway = await SessionGateway.start();
  const { extra, ticket, agent } = await session(gateway, announced);
  expect(extra).not.toHaveProperty('SecondLink');
  expect(extra).not.toHaveProperty('BulkSecret');
  expect((await ticket()).Error).toMatch(/ERR_NGROK_332$/);
  expect(await agent.call(StreamType.bind, { Id: 'a', Proto: 'https', Opts: {} })).toHaveProperty('URL');
});

it('a connection becomes the second link by the authtoken and a ticket of the session', async () => {
  const gateway = await SessionGateway.start(0, undefined, { unauthenticated: 1 });
  const { extra, attached } = await session(gateway);
  expect(extra.SecondLink).toBe(true);
  const link = await attached();
  // It no longer counts as one that has not authenticated.
  for (let count = 0; count < 2; count++) await gateway.rawClient();
  expect(await rawAgent(gateway).then((other) => other.call(StreamType.auth, {}))).toHaveProperty('Error');
  expect([link.peer.socket.destroyed, [...gateway.server.sessions].length]).toEqual([false, 1]);
});

it.each([
  ['a wrong ticket', { Ticket: 'x'.repeat(43) }],
  ['no ticket', { Ticket: '' }],
  ['another session id', { SessionId: 'ts_1' }],
  ['an unknown authtoken', { AuthToken: 'x' }],
  ['numbers', { Ticket: 7 }],
])('a connection with %s is refused and closed, and the session stays', async (_what, wrong) => {
  const gateway = await SessionGateway.start();
  const { agent, request } = await session(gateway);
  const other = await rawAgent(gateway);
  const closed = closeOf(other.peer.socket);
  const asked = await request();
  expect((await other.call(StreamType.link, { ...asked, ...wrong })).Error).toMatch(/ERR_NGROK_/);
  other.call(StreamType.link, asked).catch(() => {});
  await closed;
  expect([agent.peer.socket.destroyed, [...gateway.server.sessions].length]).toEqual([false, 1]);
});

it('a ticket is valid once, until the next one, and with its authtoken only', async () => {
  const gateway = await SessionGateway.start();
  const { request } = await session(gateway);
  const join = async (asked: object) => (await rawAgent(gateway)).call(StreamType.link, asked);
  const [older, asked] = [await request(), await request()];
  const refused = [older, { ...asked, AuthToken: await otherToken(gateway) }];
  for (const one of refused) expect((await join(one)).Error).toMatch(/ERR_NGROK_109$/);
  expect(await join(asked)).toEqual({});
  expect((await join(asked)).Error).toMatch(/ERR_NGROK_109$/);
});

it('a third connection replaces the link that has been silent for longer', async () => {
  const gateway = await SessionGateway.start();
  const { agent, attached } = await session(gateway);
  const first = await attached();
  const replaced = closeOf(first.peer.socket);
  const second = await attached();
  await replaced;
  expect([agent, second].map(({ peer }) => peer.socket.destroyed)).toEqual([false, false]);
});

/** A session with two links and an endpoint on the first. */
async function linked(options: Parameters<typeof SessionGateway.start>[2] = {}) {
  const gateway = await SessionGateway.start(0, undefined, options);
  const opened = await session(gateway);
  const second = await opened.attached();
  await opened.agent.call(StreamType.bind, { Id: 'a', Proto: 'https', Opts: { Domain: 'a.localhost' } });
  const endpoint = () => gateway.endpoints.lookup('https', 'a.localhost');
  await settle();
  const open = () => {
    const stream = endpoint()?.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
    if (!stream) throw new Error('the endpoint is offline');
    onTestFinished(() => void stream.destroy());
    return stream.on('error', () => {});
  };
  const sessions = () => [...gateway.server.sessions].length;
  return { ...opened, gateway, first: opened.agent, second, endpoint, open, sessions };
}

/** Ids of the streams that the gateway has opened for clients. */
const streamsOf = ({ peer }: RawAgent) =>
  peer.frames.filter(({ syn, payload }) => syn && payload[3] === StreamType.proxy).map(({ id }) => id);

/** Resolves when the stream is closed, also with an error. */
const closed = (stream: Duplex) => new Promise<void>((resolve) => stream.once('close', () => resolve()));

/** Opens streams until the agent gets one on the link, and returns that one: each makes the other link more attractive. */
async function openOn(link: RawAgent, { first, second, open }: Awaited<ReturnType<typeof linked>>) {
  const count = () => streamsOf(first).length + streamsOf(second).length;
  for (;;) {
    const [before, all] = [streamsOf(link).length, count()];
    const stream = open();
    stream.write(Buffer.alloc(16 * KIB));
    await until(() => count() > all, 'a stream');
    if (streamsOf(link).length > before) return stream;
  }
}

describe('a session with two links', () => {
  it('opens each stream on the link with the least bytes on their way, and leaves it there', async () => {
    const both = await linked();
    const { first, second, open } = both;
    const bulk = open();
    await until(() => streamsOf(first).length + streamsOf(second).length === 1, 'the first stream');
    const [busy, free] = streamsOf(first).length === 1 ? [first, second] : [second, first];
    const [id] = streamsOf(busy) as [number];
    let received = 0;
    bulk.on('data', (piece: Buffer) => {
      received += piece.length;
    });
    for (let piece = 1; piece <= 20; piece++) {
      busy.peer.sendData(id, Buffer.alloc(100 * KIB));
      await until(() => received === piece * 100 * KIB, 'the bytes');
      bulk.write('more');
      open().write('small');
      await until(() => streamsOf(free).length === piece, 'a small stream on the other link');
    }
    expect(streamsOf(busy)).toEqual([id]);
    expect(busy.peer.received(id).toString()).toMatch(/(more){20}$/);
    const ended = once(bulk, 'end');
    busy.peer.sendData(id, '', { fin: true });
    await ended;
  });

  it.each(['first', 'second'] as const)('loses the streams of the %s link with it, and goes on', async (which) => {
    const both = await linked();
    const { first, second, endpoint, open, sessions } = both;
    const [link, other] = which === 'first' ? [first, second] : [second, first];
    const doomed = await openOn(link, both);
    const safe = await openOn(other, both);
    const lost = closed(doomed);
    link.peer.socket.destroy();
    await lost;
    expect([safe.destroyed, sessions(), endpoint()?.url]).toEqual([false, 1, 'https://a.localhost:8443']);
    const before = streamsOf(other).length;
    safe.write('still here');
    open().write('new');
    await until(() => streamsOf(other).length === before + 1, 'a new stream on the other link');
    const bound = await other.call(StreamType.bind, { Id: 'b', Proto: 'https', Opts: { Domain: 'b.localhost' } });
    expect(bound).toMatchObject({ URL: 'https://b.localhost:8443' });
    other.peer.socket.destroy();
    await until(() => sessions() === 0, 'the end of the session');
    expect(endpoint()).toBeUndefined();
  });

  it('ends with both links when the gateway ends it', async () => {
    const { first, second, gateway } = await linked();
    const closed = [first, second].map(({ peer }) => closeOf(peer.socket));
    for (const one of gateway.server.sessions) one.end(new Error('over'));
    await Promise.all(closed);
  });

  it('ends when the link ends that a command was sent on, which the agent may not have read', async () => {
    const { first, second, gateway, sessions } = await linked();
    const [live] = gateway.server.sessions;
    const [listener] = live?.listeners ?? [];
    live?.stopListener({ id: listener?.id ?? '' }, 'revoked', 'ERR_NGROK_300');
    const closed = closeOf(second.peer.socket);
    first.peer.socket.destroy();
    await closed;
    expect(sessions()).toBe(0);
  });

  it('has one memory limit for both, and a link that ends gives back what its streams held', async () => {
    const { first, second, attached, sessions } = await linked({ memory: new AgentMemory(4 * KIB * KIB) });
    /** Sends a quarter of what the session may hold, as the start of a request. */
    const hold = (link: RawAgent) => link.open(StreamType.bind, `{"Id":"${'x'.repeat(250 * KIB)}`);
    for (const link of [first, second, second]) hold(link);
    for (const link of [first, second]) await link.call(StreamType.serverInfo, {});
    expect([first, second].map(({ peer }) => peer.socket.destroyed)).toEqual([false, false]);
    const ended = closed(second.peer.socket);
    for (let count = 0; count < 2; count++) hold(second);
    await ended;
    expect(sessions()).toBe(1);
    const third = await attached();
    for (let count = 0; count < 2; count++) hold(third);
    for (const link of [first, third]) await link.call(StreamType.serverInfo, {});
    expect([first, third].map(({ peer }) => peer.socket.destroyed)).toEqual([false, false]);
  });

  it('counts echoes of heartbeats that the second one does not take', async () => {
    const memory = new AgentMemory(4 * KIB * KIB);
    const { second, sessions } = await linked({ memory });
    const { peer } = second;
    const credited = (id: number) => {
      const credit = peer.frames.filter((frame) => frame.kind === 'credit' && frame.id === id);
      return credit.reduce((sum, { increment }) => sum + increment, 0);
    };
    const ended = closed(peer.socket);
    // The echoes exceed the window of each stream by 94 KiB, and together what the session may hold.
    for (let count = 0; count < 12 && !peer.socket.destroyed; count++) {
      const id = second.open(StreamType.heartbeat, '');
      peer.sendData(id, Buffer.alloc(200 * KIB));
      await until(() => credited(id) >= 100 * KIB || peer.socket.destroyed, 'credit');
      peer.sendData(id, Buffer.alloc(150 * KIB));
    }
    await ended;
    expect(sessions()).toBe(1);
  });

  it('closes the second one when the agent opens stream after stream there that asks for nothing', async () => {
    const { first, second, sessions } = await linked();
    const { peer } = second;
    for (let done = 0; done < 1500 && !peer.socket.destroyed; done += 50) {
      const streams = Array.from({ length: 50 }, () => second.open(null, ''));
      for (const stream of streams) peer.sendData(stream, '', { fin: true });
      const ended = () => peer.frames.filter(({ fin }) => fin).length;
      await until(() => peer.socket.destroyed || ended() >= done + 50, 'the ends of the streams');
    }
    expect([peer.socket.destroyed, first.peer.socket.destroyed, sessions()]).toEqual([true, false, 1]);
  });

  it('was silent for as long as the link that was lost last', async () => {
    const gateway = await SessionGateway.start();
    const { agent, attached } = await session(gateway, { ...BOTH, HeartbeatInterval: 1e6, HeartbeatTolerance: 1e6 });
    await attached();
    const removed = once(gateway.server, 'removed');
    agent.peer.socket.destroy();
    const [{ silentMs }] = await removed;
    // The agent announced 2 ms, and may be a second late.
    expect(silentMs).toBeGreaterThanOrEqual(1_000);
  });

  it('closes the second one when no stream has used it for a minute', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const both = await linked();
    const { first, second, sessions } = both;
    const stream = await openOn(second, both);
    for (let minute = 0; minute < 3; minute++) await vi.advanceTimersByTimeAsync(60_000);
    expect(second.peer.socket.destroyed).toBe(false);
    const before = streamsOf(first).length;
    both.open();
    await until(() => streamsOf(first).length > before, 'a stream on the first link, as nothing is on its way');
    const ended = closeOf(second.peer.socket);
    const [id] = streamsOf(second) as [number];
    second.peer.sendReset(id);
    await closed(stream);
    await vi.advanceTimersByTimeAsync(60_000);
    await ended;
    expect([first.peer.socket.destroyed, sessions()]).toEqual([false, 1]);
  });
});

it('at the limit, an authtoken with several second links leaves one to another authtoken', async () => {
  const gateway = await SessionGateway.start(0, undefined, { limits: { sessions: 8 } });
  const greedy = [await session(gateway), await session(gateway)];
  const links: RawAgent[] = [];
  for (const { attached } of greedy) links.push(await attached());
  const modest = await session(gateway, BOTH, await otherToken(gateway));
  const ended = closeOf(links[1]?.peer.socket as Socket);
  await modest.attached();
  await ended;
  expect([links[0]?.peer.socket.destroyed, [...gateway.server.sessions].length]).toEqual([false, 3]);
});

it('at the limit, a link that parts of a transfer come on stays, and one that nothing uses ends', async () => {
  const gateway = await SessionGateway.start(0, undefined, { limits: { sessions: 8 } });
  const several = { ...BOTH, Links: 4 };
  const [idle, busy] = [await session(gateway, several), await session(gateway, several)];
  const links: RawAgent[] = [];
  for (const { request } of [idle, busy]) {
    const link = await rawAgent(gateway);
    expect(await link.call(StreamType.link, { ...(await request()), Link: 1 })).toEqual({});
    links.push(link);
  }
  await busy.agent.call(StreamType.bind, { Id: 'a', Proto: 'https', Opts: { Domain: 'a.localhost' } });
  const endpoint = gateway.endpoints.lookup('https', 'a.localhost');
  const stream = endpoint?.openStream({ address: '203.0.113.7:4567', protocol: 'https' }) as Duplex;
  onTestFinished(() => void stream.on('error', () => {}).destroy());
  await until(() => streamsOf(busy.agent).length === 1, 'the stream');
  const { peer, open } = links[1] as RawAgent;
  const came = once(stream, 'data');
  const part = open(StreamType.part, '');
  peer.sendData(part, partHead(0, streamsOf(busy.agent)[0] as number, 0));
  peer.sendData(part, 'part', { fin: true });
  expect(String(await came)).toBe('part');
  const modest = await session(gateway, BOTH, await otherToken(gateway));
  const ended = closeOf(links[0]?.peer.socket as Socket);
  await modest.attached();
  await ended;
  expect([peer.socket.destroyed, stream.destroyed]).toEqual([false, false]);
});

it('a gateway has a quarter as many second links as sessions', async () => {
  const gateway = await SessionGateway.start(0, undefined, { limits: { sessions: 4 } });
  const [one, other] = [await session(gateway), await session(gateway)];
  const link = await one.attached();
  const refused = async () => (await rawAgent(gateway)).call(StreamType.link, await other.request());
  expect((await refused()).Error).toMatch(/ERR_NGROK_348$/);
  link.peer.socket.destroy();
  await expect.poll(async () => (await refused()).Error).toBe(undefined);
  expect([...gateway.server.sessions]).toHaveLength(2);
});

describe('an agent that supports several links', () => {
  const SEVERAL = { ...BOTH, Links: 4 };

  /** A session with so many further links, by number. */
  async function several(count: number, options: Parameters<typeof SessionGateway.start>[2] = {}) {
    const gateway = await SessionGateway.start(0, undefined, options);
    const opened = await session(gateway, SEVERAL);
    const join = async (number: number) => {
      const link = await rawAgent(gateway);
      return { link, answer: await link.call(StreamType.link, { ...(await opened.request()), Link: number }) };
    };
    const links: RawAgent[] = [opened.agent];
    for (let number = 1; number <= count; number++) links.push((await join(number)).link);
    await opened.agent.call(StreamType.bind, { Id: 'a', Proto: 'https', Opts: { Domain: 'a.localhost' } });
    const openStream = () => {
      const endpoint = gateway.endpoints.lookup('https', 'a.localhost');
      const stream = endpoint?.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
      if (!stream) throw new Error('the endpoint is offline');
      onTestFinished(() => void stream.destroy());
      return stream.on('error', () => {});
    };
    const alive = () => links.map(({ peer }) => !peer.socket.destroyed);
    return { ...opened, gateway, join, links, alive, openStream };
  }

  it('has as many as both support, each with a number of its own; one more replaces the most silent one', async () => {
    const { extra, join, links, alive, gateway } = await several(3);
    expect(extra).toMatchObject({ Links: 4, Ticket: expect.stringMatching(/^.{43}$/) });
    for (const number of [0, 2, -1]) expect((await join(number)).answer.Error).toMatch(/ERR_NGROK_109$/);
    expect(alive()).toEqual([true, true, true, true]);
    for (const at of [0, 2, 3]) await links[at]?.call(StreamType.serverInfo, {});
    const ended = closeOf(links[1]?.peer.socket as Socket);
    // Agents count on as links come and go.
    expect((await join(70_000)).answer).toEqual({});
    await ended;
    expect([alive(), [...gateway.server.sessions].length]).toEqual([[true, false, true, true], 1]);
  });

  it.each([0, 2, -1, 3.5, '8', 1e9])('is one that announces %j only if that is a number of links', async (count) => {
    const gateway = await SessionGateway.start();
    const { extra } = await session(gateway, { ...BOTH, Links: count });
    expect([extra.SecondLink, extra.Links]).toEqual([true, count === 1e9 ? MOST_LINKS : undefined]);
  });

  it('may close a link only if no client uses it, and gets nothing more there', async () => {
    const { links, openStream } = await several(1);
    const [first, second] = links as [RawAgent, RawAgent];
    expect((await first.call(StreamType.linkEnd, {})).Error).toMatch(/ERR_NGROK_109$/);
    // Bytes on the first make the second attractive.
    const stream = openStream();
    await until(() => streamsOf(first).length === 1, 'a stream');
    stream.write(Buffer.alloc(200 * KIB));
    await settle();
    const other = openStream();
    await until(() => streamsOf(second).length === 1, 'a stream on the second');
    expect((await second.call(StreamType.linkEnd, {})).Error).toMatch(/in use/);
    other.destroy();
    await closed(other);
    await settle();
    expect(await second.call(StreamType.linkEnd, {})).toEqual({});
    openStream();
    await until(() => streamsOf(first).length === 2, 'a stream on the first');
    expect(streamsOf(second)).toHaveLength(1);
  });

  it('uses a link again that was to be closed, once it is the only one', async () => {
    const { links, openStream } = await several(2);
    const [first, second, third] = links as [RawAgent, RawAgent, RawAgent];
    expect(await second.call(StreamType.linkEnd, {})).toEqual({});
    const ends = closed(openStream());
    await until(() => streamsOf(first).length === 1, 'a stream');
    first.peer.socket.destroy();
    await ends;
    // Says that packets are lost: streams take the second link that may be used.
    const part = second.open(StreamType.part, '\0'.repeat(14));
    await second.peer.until(() => second.peer.frames.some(({ id, kind }) => id === part && kind === 'reset'));
    openStream();
    await until(() => streamsOf(second).length + streamsOf(third).length === 1, 'a stream');
    expect(streamsOf(third)).toHaveLength(1);
  });

  it('is told on the second link by a part that packets are lost, and then has new streams there', async () => {
    const { links, openStream } = await several(2);
    const [first, second] = links as [RawAgent, RawAgent];
    const part = first.open(StreamType.part, '\0'.repeat(14));
    await first.peer.until(() => first.peer.frames.some(({ id, kind }) => id === part && kind === 'reset'));
    for (let count = 0; count < 3; count++) openStream();
    await until(() => streamsOf(second).length === 3, 'the streams');
    expect(streamsOf(first)).toEqual([]);
  });

  it('leaves half of all further links of the gateway to second ones', async () => {
    const { alive, join, gateway } = await several(1, { limits: { sessions: 8 } });
    expect((await join(2)).answer.Error).toMatch(/ERR_NGROK_348$/);
    const other = await session(gateway, SEVERAL);
    const link = await rawAgent(gateway);
    expect(await link.call(StreamType.link, { ...(await other.request()), Link: 1 })).toEqual({});
    expect(alive()).toEqual([true, true]);
  });
});

it('a part, or the end of a link, is an unknown request of an agent without several links', async () => {
  const gateway = await SessionGateway.start();
  const { agent } = await session(gateway);
  for (const type of [StreamType.part, StreamType.linkEnd])
    expect((await agent.call(type, {})).Error).toMatch(/ERR_NGROK_332$/);
});
