import { once } from 'node:events';
import { expect, it } from 'vitest';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

const SLOT = [1_700_000_000, 300, 51.5, null, null, null];

async function agentWith(announced: boolean) {
  const gateway = await SessionGateway.start();
  const agent = await rawAgent(gateway);
  const { Extra, ...request } = auth(gateway);
  const answer = await agent.call(StreamType.auth, { ...request, Extra: { ...Extra, TimesAway: announced } });
  const reports: unknown[] = [];
  gateway.server.on('away', ({ credential }, times) => reports.push({ credential: credential.id, times }));
  const say = (body: object) => agent.call(StreamType.timesAway, body);
  return { gateway, agent, reports, say, extra: Object(answer.Extra) };
}

it('an agent says when it ran without a session, for itself alone, and not more than of a day', async () => {
  const { gateway, reports, say, extra } = await agentWith(true);
  expect(extra.TimesAway).toBe(true);
  expect(await say({ Now: 1_700_000_700, Slots: [SLOT], Device: 'dev_other' })).toEqual({});
  const [session] = gateway.server.sessions;
  expect(reports).toEqual([{ credential: session?.credential.id, times: { Now: 1_700_000_700, Slots: [SLOT] } }]);
  const wrong = [
    { Now: 1, Slots: Array(146).fill(SLOT) },
    { Now: 1, Slots: [[1, 601, null, null, null, null]] },
    { Now: 1, Slots: [[1, 300, 'hot', null, null, null]] },
    { Now: -1, Slots: [] },
  ];
  for (const body of wrong) expect(await say(body)).toMatchObject({ Error: expect.stringContaining('invalid') });
  expect(reports).toHaveLength(1);
});

it('an agent that does not announce it is refused', async () => {
  const { reports, say, extra } = await agentWith(false);
  expect(extra.TimesAway).toBeUndefined();
  expect(await say({ Now: 1, Slots: [] })).toMatchObject({ Error: expect.stringContaining('not supported') });
  expect(reports).toEqual([]);
});

it('a session knows whether its agent has stopped, or its connection was lost', async () => {
  for (const [isLeaving, expected] of [
    [true, 'stopped'],
    [false, 'lost'],
  ] as const) {
    const { gateway, agent } = await agentWith(true);
    const bind = { Id: '', Proto: 'https', ForwardsTo: '80', Opts: { Domain: 'cam.localhost' }, Extra: {} };
    const { Id } = await agent.call(StreamType.bind, bind);
    const removed = once(gateway.server, 'removed');
    if (isLeaving) await agent.call(StreamType.unbind, { Id, Drain: true });
    agent.peer.socket.destroy();
    expect((await removed)[0].endedBy).toBe(expected);
  }
});
