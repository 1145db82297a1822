import { once } from 'node:events';
import type { Socket } from 'node:net';
import { expect, it } from 'vitest';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import { issueCredential } from '../../../src/gateway/store/issue-token.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

/** A session that supports a connection for bulk, and the request that attaches one. */
async function session(gateway: SessionGateway, window: number | undefined = 16_777_216, token = gateway.authtoken) {
  const agent = await rawAgent(gateway);
  const { Extra, ...request } = auth(gateway);
  const extra = { ...Extra, AuthToken: token, StreamWindow: window };
  const answer = await agent.call(StreamType.auth, { ...request, Extra: extra });
  const { BulkSecret } = answer.Extra as { BulkSecret?: string };
  const attach = { AuthToken: token, SessionId: String(answer.ClientId), Secret: BulkSecret ?? '' };
  return { agent, secret: BulkSecret, attach };
}

it('an agent that announces no windows gets no secret, and others get one each', async () => {
  const gateway = await SessionGateway.start();
  expect((await session(gateway, undefined)).secret).toHaveLength(43);
  expect((await session(gateway, 0)).secret).toBeUndefined();
  const secrets = [await session(gateway), await session(gateway)].map(({ secret }) => secret);
  expect(new Set(secrets).size).toBe(2);
});

it('a connection for bulk is attached by the authtoken and the secret of its session, and ends with it', async () => {
  const gateway = await SessionGateway.start(0, undefined, { unauthenticated: 1 });
  const { agent, attach } = await session(gateway);
  const bulk = await rawAgent(gateway);
  expect(await bulk.call(StreamType.bulk, attach)).toEqual({});
  // It no longer counts as one that has not authenticated.
  for (let count = 0; count < 2; count++) await gateway.rawClient();
  expect(await rawAgent(gateway).then((other) => other.call(StreamType.auth, {}))).toHaveProperty('Error');
  expect([bulk.peer.socket.destroyed, [...gateway.server.sessions].length]).toEqual([false, 1]);
  const ended = once(bulk.peer.socket, 'close');
  agent.peer.socket.destroy();
  await ended;
});

it.each([
  ['a wrong secret', { Secret: 'x'.repeat(43) }],
  ['no secret', { Secret: '' }],
  ['another session id', { SessionId: 'ts_1' }],
  ['an unknown authtoken', { AuthToken: 'x' }],
  ['numbers', { Secret: 7 }],
])('a connection with %s is refused and closed, and the session stays', async (_what, wrong) => {
  const gateway = await SessionGateway.start();
  const { agent, attach } = await session(gateway);
  const other = await rawAgent(gateway);
  const closed = once(other.peer.socket, 'close');
  expect((await other.call(StreamType.bulk, { ...attach, ...wrong })).Error).toMatch(/ERR_NGROK_/);
  other.call(StreamType.bulk, attach).catch(() => {});
  await closed;
  expect([agent.peer.socket.destroyed, [...gateway.server.sessions].length]).toEqual([false, 1]);
});

it('a session without a secret gets no connection for bulk', async () => {
  const gateway = await SessionGateway.start();
  const { attach } = await session(gateway, 0);
  const other = await rawAgent(gateway);
  expect((await other.call(StreamType.bulk, attach)).Error).toMatch(/ERR_NGROK_109$/);
});

it('the secret is useless with another authtoken', async () => {
  const gateway = await SessionGateway.start();
  const { attach } = await session(gateway);
  const { store } = gateway;
  const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
  const other = await rawAgent(gateway);
  expect((await other.call(StreamType.bulk, { ...attach, AuthToken: token })).Error).toMatch(/ERR_NGROK_109$/);
});

it('an attached connection takes no requests, and a further one replaces it', async () => {
  const gateway = await SessionGateway.start();
  const { agent, attach } = await session(gateway);
  const attached = async () => {
    const bulk = await rawAgent(gateway);
    await bulk.call(StreamType.bulk, attach);
    return bulk;
  };
  const first = await attached();
  const replaced = once(first.peer.socket, 'close');
  const second = await attached();
  await replaced;
  const ended = once(second.peer.socket, 'close');
  second.call(StreamType.bind, { Id: '', Proto: 'https', Opts: {} }).catch(() => {});
  await ended;
  expect([agent.peer.socket.destroyed, gateway.endpoints.list()]).toEqual([false, []]);
});

it('at the limit, an authtoken with several connections for bulk leaves one to another authtoken', async () => {
  const gateway = await SessionGateway.start(0, undefined, { limits: { sessions: 8 } });
  const greedy = [await session(gateway), await session(gateway)];
  const carriers = [await rawAgent(gateway), await rawAgent(gateway)];
  for (const [at, carrier] of carriers.entries()) await carrier.call(StreamType.bulk, greedy[at]?.attach ?? {});
  const { store } = gateway;
  const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
  const modest = await session(gateway, undefined, token);
  const ended = once(carriers[1]?.peer.socket as Socket, 'close');
  expect(await (await rawAgent(gateway)).call(StreamType.bulk, modest.attach)).toEqual({});
  await ended;
  expect(carriers[0]?.peer.socket.destroyed).toBe(false);
});

it('a gateway has a quarter as many connections for bulk as sessions', async () => {
  const gateway = await SessionGateway.start(0, undefined, { limits: { sessions: 4 } });
  const [one, other] = [await session(gateway), await session(gateway)];
  const first = await rawAgent(gateway);
  expect(await first.call(StreamType.bulk, one.attach)).toEqual({});
  const refused = async () => (await rawAgent(gateway)).call(StreamType.bulk, other.attach);
  expect((await refused()).Error).toMatch(/ERR_NGROK_348$/);
  first.peer.socket.destroy();
  await expect.poll(async () => (await refused()).Error).toBe(undefined);
  expect([...gateway.server.sessions]).toHaveLength(2);
});
