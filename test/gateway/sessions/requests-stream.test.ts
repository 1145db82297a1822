import { expect, it } from 'vitest';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import type { RequestReport } from '../../../src/agent-protocol/request-report.ts';
import type { OnlineEndpoint } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { AgentMemory } from '../../../src/gateway/sessions/agent-limits.ts';
import { until } from '../../support/until.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

const REPORT: RequestReport = {
  at: 0,
  ms: 1,
  method: 'GET',
  host: 'cam.localhost',
  target: '/',
  client: '203.0.113.7:1000',
  status: 403,
  code: null,
  sent: null,
  by: 'gateway',
  rules: [],
};

/** An agent of this project with an endpoint. */
async function agentWith(gateway: SessionGateway, domain: string, announced: unknown = true) {
  const agent = await rawAgent(gateway);
  const { Extra, ...request } = auth(gateway);
  const extra = { ...Extra, StreamWindow: 1_048_576, RequestFeed: announced };
  const answer = await agent.call(StreamType.auth, { ...request, Extra: extra });
  const bound = { Id: '', Proto: 'https', ForwardsTo: 'x', Opts: { Domain: domain }, Extra: {} };
  const { Id } = await agent.call(StreamType.bind, bound);
  const endpoint = gateway.endpoints.list().find(({ host }) => host === domain) as OnlineEndpoint;
  const lines = (id: number) =>
    agent.peer
      .received(id)
      .toString()
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  const hasEnded = (id: number) => agent.peer.frames.some((frame) => frame.id === id && frame.fin);
  const ended = (id: number) => agent.peer.until(() => hasEnded(id));
  const watched = async () => {
    const id = agent.open(StreamType.requests, JSON.stringify({ Id }));
    // Its answer comes after the stream was opened.
    await agent.call(StreamType.serverInfo, {});
    return id;
  };
  return {
    ...agent,
    id: String(Id),
    endpoint,
    offered: (answer.Extra as { RequestFeed?: true }).RequestFeed,
    lines,
    hasEnded,
    ended,
    watched,
  };
}

it('an agent gets the reports of its endpoint as lines, until it ends the stream', async () => {
  const gateway = await SessionGateway.start();
  const agent = await agentWith(gateway, 'cam.localhost');
  const stream = await agent.watched();
  agent.endpoint.feed?.publish(REPORT);
  agent.endpoint.feed?.publish({ ...REPORT, target: '/ü' });
  await agent.peer.until(() => agent.lines(stream).length === 2);
  expect(agent.lines(stream)).toEqual([REPORT, { ...REPORT, target: '/ü' }]);
  agent.peer.sendData(stream, '', { fin: true });
  await agent.ended(stream);
  expect(agent.endpoint.feed).toBeNull();
});

it('the stream ends with the endpoint, and with the session', async () => {
  const gateway = await SessionGateway.start();
  const agent = await agentWith(gateway, 'cam.localhost');
  const stream = await agent.watched();
  await agent.call(StreamType.unbind, { Id: agent.id });
  await agent.ended(stream);
  const other = await agentWith(gateway, 'other.localhost');
  await other.watched();
  const { endpoint } = other;
  expect(endpoint.feed).not.toBeNull();
  const removed = new Promise((resolve) => gateway.endpoints.once('removed', resolve));
  other.peer.socket.destroy();
  await removed;
  expect(endpoint.feed).toBeNull();
});

it('an agent cannot watch the endpoints of others', async () => {
  const gateway = await SessionGateway.start();
  const agent = await agentWith(gateway, 'cam.localhost');
  const other = await agentWith(gateway, 'other.localhost');
  for (const id of [other.id, other.endpoint.publicId, '', 'x']) {
    const stream = agent.open(StreamType.requests, JSON.stringify({ Id: id }));
    await agent.ended(stream);
    expect(agent.lines(stream)).toEqual([{ Error: expect.stringContaining('no endpoint of this session') }]);
  }
  expect(other.endpoint.feed).toBeNull();
});

it.each([
  ['no JSON', 'x'],
  ['a list', '[]'],
  ['a number for an id', '{"Id": 1}'],
  ['too much', `{"Id": "${'x'.repeat(2_000)}"}`],
])('a request with %s is refused, and the session goes on', async (_, body) => {
  const gateway = await SessionGateway.start();
  const agent = await agentWith(gateway, 'cam.localhost');
  const stream = agent.open(StreamType.requests, body);
  await agent.ended(stream);
  expect(agent.lines(stream)).toEqual([{ Error: expect.stringContaining('ERR_NGROK_301') }]);
  expect(await agent.call(StreamType.serverInfo, {})).toHaveProperty('Region');
});

it('a session can watch 16 endpoints at a time', async () => {
  const gateway = await SessionGateway.start();
  const agent = await agentWith(gateway, 'cam.localhost');
  for (let count = 0; count < 16; count++) await agent.watched();
  const stream = await agent.watched();
  await agent.ended(stream);
  expect(agent.lines(stream)).toEqual([{ Error: expect.stringContaining('too many feeds') }]);
});

it.each([undefined, false, 'yes'])(
  'an agent that announces %j is offered no reports, and gets none',
  async (announced) => {
    const gateway = await SessionGateway.start();
    const agent = await agentWith(gateway, 'cam.localhost', announced ?? null);
    expect(agent.offered).toBeUndefined();
    expect(await agent.call(StreamType.requests, { Id: agent.id })).toEqual({
      Error: expect.stringContaining('not supported by this gateway'),
    });
  },
);

it('an agent that does not read its reports loses that stream when memory is short, not its session', async () => {
  const gateway = await SessionGateway.start(0, undefined, { memory: new AgentMemory(1_000_000) });
  const agent = await agentWith(gateway, 'cam.localhost');
  const stream = await agent.watched();
  const large = { ...REPORT, target: `/${'a'.repeat(4_000)}` };
  const isCut = () => agent.peer.frames.some(({ id, kind }) => id === stream && kind === 'reset');
  const publish = () => {
    for (let count = 0; count < 200; count++) agent.endpoint.feed?.publish(large);
    return isCut();
  };
  await until(publish, 'the reset of the stream');
  expect(await agent.call(StreamType.serverInfo, {})).toHaveProperty('Region');
});

it.each([
  ['a stream that watches requests', StreamType.requests, '{"Id":"x"}'],
  ['a malformed request', StreamType.unbind, 'x'],
])('%s is answered in its turn, after earlier requests', async (_what, type, body) => {
  const gateway = await SessionGateway.start();
  const agent = await agentWith(gateway, 'cam.localhost');
  const earlier = Array.from({ length: 20 }, () => agent.open(StreamType.serverInfo, '{}'));
  const late = agent.open(type, body);
  await agent.ended(late);
  const ended = agent.peer.frames.filter(({ fin }) => fin).map(({ id }) => id);
  expect(ended.slice(-21)).toEqual([...earlier, late]);
});

/** Opens a stream, ends it once it is answered, if it is, and says whether the session goes on. */
async function openAndEnd(gateway: SessionGateway, type: number | null, body: string, count: number) {
  const agent = await agentWith(gateway, 'cam.localhost');
  for (let done = 0; done < count && !agent.peer.socket.destroyed; done += 50) {
    const streams = Array.from({ length: 50 }, () => agent.open(type, body));
    for (const stream of streams) agent.peer.sendData(stream, '', { fin: true });
    const isOver = () => agent.peer.socket.destroyed || streams.every((id) => agent.hasEnded(id));
    await until(isOver, 'the ends of the streams');
  }
  return !agent.peer.socket.destroyed;
}

it.each([
  ['without a type', null, ''],
  ['for heartbeats', StreamType.heartbeat, ''],
  ['that watch an unknown endpoint', StreamType.requests, '{"Id":"x"}'],
])('an agent that opens stream after stream %s loses its session', async (_which, type, body) => {
  const gateway = await SessionGateway.start();
  // It may open a hundred a second for ever: on a slow machine it takes more than a thousand.
  expect(await openAndEnd(gateway, type, body, 10_000)).toBe(false);
});

it('an agent that sends request after request keeps its session', async () => {
  const gateway = await SessionGateway.start();
  expect(await openAndEnd(gateway, StreamType.serverInfo, '{}', 1500)).toBe(true);
});
