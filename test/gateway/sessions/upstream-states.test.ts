import { expect, it } from 'vitest';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

/** An agent with two members of a pool. */
async function agentWith(announced: boolean) {
  const gateway = await SessionGateway.start();
  const agent = await rawAgent(gateway);
  const { Extra, ...request } = auth(gateway);
  const answer = await agent.call(StreamType.auth, { ...request, Extra: { ...Extra, UpstreamStates: announced } });
  const bind = async (forwardsTo: string) => {
    const request = { Id: '', Proto: 'https', ForwardsTo: forwardsTo, Opts: { Domain: 'cam.localhost' } };
    return String((await agent.call(StreamType.bind, { ...request, Extra: { PoolingEnabled: true } })).Id);
  };
  const served = () => [1, 2].map(() => gateway.endpoints.lookup('https', 'cam.localhost')?.forwardsTo);
  const say = (body: object) => agent.call(StreamType.upstreamState, body);
  return { say, served, one: await bind('one'), two: await bind('two'), extra: Object(answer.Extra) };
}

it('clients get the members of a pool whose upstreams are up, or any when none is', async () => {
  const { say, served, one, two, extra } = await agentWith(true);
  expect(extra.UpstreamStates).toBe(true);
  expect(served()).toEqual(['one', 'two']);
  expect(await say({ Id: one, Down: true })).toEqual({});
  expect(served()).toEqual(['two', 'two']);
  await say({ Id: two, Down: true });
  expect(served().sort()).toEqual(['one', 'two']);
  await say({ Id: one, Down: false });
  expect(served()).toEqual(['one', 'one']);
  // It may just have gone offline.
  expect(await say({ Id: 'unknown', Down: true })).toEqual({});
  expect(await say({ Id: one, Down: 'yes' })).toMatchObject({ Error: expect.stringContaining('invalid: Down') });
  expect(served()).toEqual(['one', 'one']);
});

it('an agent that does not announce it is refused', async () => {
  const { say, served, one, extra } = await agentWith(false);
  expect(extra.UpstreamStates).toBeUndefined();
  expect(await say({ Id: one, Down: true })).toMatchObject({ Error: expect.stringContaining('not supported') });
  expect(served()).toEqual(['one', 'two']);
});
