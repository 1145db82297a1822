import { expect, it } from 'vitest';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import type { OnlineEndpoint } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

/** An agent with two endpoints, and what the gateway has told it of refused responses. */
async function agentWith(announced: boolean) {
  const gateway = await SessionGateway.start();
  const agent = await rawAgent(gateway);
  const { Extra, ...request } = auth(gateway);
  await agent.call(StreamType.auth, { ...request, Extra: { ...Extra, RefusedAnswers: announced } });
  const bind = async (domain: string) => {
    const { Id } = await agent.call(StreamType.bind, {
      ...{ Id: '', Proto: 'https', ForwardsTo: 'x', Opts: { Domain: domain }, Extra: {} },
    });
    const endpoint = gateway.endpoints.list().find(({ host }) => host === domain) as OnlineEndpoint;
    return { id: String(Id), endpoint };
  };
  const told = () => {
    const streams = [...new Set(agent.peer.frames.map(({ id }) => id))].filter((id) => id > 0 && id % 2 === 0);
    return streams
      .map((id) => ({ id, bytes: agent.peer.received(id) }))
      .filter(({ bytes }) => bytes.length > 4 && bytes.readUInt32BE() === StreamType.refusedAnswer)
      .map(({ id, bytes }) => ({ id, body: JSON.parse(bytes.subarray(4).toString()) }));
  };
  return { ...agent, cam: await bind('cam.localhost'), other: await bind('other.localhost'), told };
}

it('an agent is told of refused responses, of one at a time until it has read that', async () => {
  const { peer, call, cam, other, told } = await agentWith(true);
  cam.endpoint.answerRefused?.('it has no status line');
  other.endpoint.answerRefused?.('left out');
  await peer.until(() => told().length === 1);
  expect(told()[0]?.body).toEqual({ Id: cam.id, Reason: 'it has no status line' });
  peer.sendData(told()[0]?.id ?? 0, '{}', { fin: true });
  // Its answer comes after that was read.
  await call(StreamType.serverInfo, {});
  cam.endpoint.answerRefused?.('within a second of the last one');
  await call(StreamType.serverInfo, {});
  expect(told()).toHaveLength(1);
});

it('an agent that does not announce it is not told', async () => {
  const { call, cam, told } = await agentWith(false);
  cam.endpoint.answerRefused?.('it has no status line');
  await call(StreamType.serverInfo, {});
  expect(told()).toEqual([]);
});
