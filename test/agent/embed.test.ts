import { once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { type AgentOptions, ApiError, createAgent, OperatorError } from '../../src/agent/embed.ts';
import { getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

async function setUp() {
  const gateway = await startTestGateway();
  const upstream = await startHttpService((_, res) => void res.end('served'));
  onTestFinished(async () => {
    await upstream.close();
    await gateway.close();
  });
  return { gateway, upstream };
}

function agentOf({ sessionAddress, authtoken, sessionCa }: TestGateway, more: Partial<AgentOptions> = {}) {
  const dataDir = temporaryFolder();
  const agent = createAgent({ gateway: sessionAddress, authtoken, ca: sessionCa, dataDir, ...more });
  onTestFinished(() => agent.stop());
  return { agent, dataDir };
}

async function online(agent: ReturnType<typeof createAgent>) {
  const [[session]] = await Promise.all([once(agent, 'session'), agent.start()]);
  expect(session.state).toBe('online');
}

it('several agents of one process have tunnels of their own, which come back with the next start', async () => {
  const { gateway, upstream } = await setUp();
  const { agent } = agentOf(gateway);
  const { agent: other } = agentOf(gateway);
  await Promise.all([online(agent), online(other)]);
  const { url } = await agent.tunnels.create({ forwards_to: upstream.url, domain: 'one.localhost' });
  await other.tunnels.create({ forwards_to: upstream.url, domain: 'two.localhost' });
  expect(await getPublic(gateway, url)).toMatchObject({ status: 200, body: 'served' });
  expect((await other.tunnels.list()).map(({ domain }) => domain)).toEqual(['two.localhost']);
  await agent.stop();
  const tunnel = once(agent, 'tunnel');
  await agent.start();
  expect(await tunnel).toMatchObject([{ url, status: 'online' }]);
  await agent.tunnels.delete('one');
  expect(await agent.tunnels.list()).toEqual([]);
});

it('an agent listens only when asked to, and logs to its listeners', async () => {
  const { gateway, upstream } = await setUp();
  const { agent } = agentOf(gateway);
  const { agent: listening } = agentOf(gateway, { api: { port: 0 } });
  const messages: string[] = [];
  listening.on('log', ({ msg }) => messages.push(msg));
  await Promise.all([online(agent), online(listening)]);
  expect(agent.status().addresses.api).toBeUndefined();
  await listening.tunnels.create({ forwards_to: upstream.url });
  const answer = await fetch(`${listening.status().addresses.api}/tunnels`);
  expect(await answer.json()).toMatchObject([{ status: 'online' }]);
  expect(messages).toEqual(expect.arrayContaining(['local API listening']));
});

it('errors are typed: options, calls at the wrong time, requests', async () => {
  const { gateway } = await setUp();
  const { agent, dataDir } = agentOf(gateway);
  expect(() => agentOf(gateway, { gateway: 'no address' })).toThrow(/^gateway: "no address": .*; allowed: /);
  expect(() => agentOf(gateway, { authtoken: 'two words' })).toThrow(/^authtoken: \(not shown\): /);
  expect(() => agentOf(gateway, { dataDir: '' })).toThrow(new OperatorError('dataDir is missing', 2));
  await expect(agent.tunnels.list()).rejects.toMatchObject({ code: 'ERR_AGENT_NOT_READY' });
  await online(agent);
  await expect(agent.start()).rejects.toThrow(OperatorError);
  await expect(agentOf(gateway, { dataDir }).agent.start()).rejects.toThrow(OperatorError);
  await expect(agent.tunnels.create({ forwards_to: 'nobody knows' })).rejects.toThrow(ApiError);
  await expect(agent.tunnels.get('missing')).rejects.toMatchObject({ code: 'ERR_AGENT_TUNNEL_NOT_FOUND', status: 404 });
});

it('an authtoken that is unavailable for a moment costs one attempt to connect', async () => {
  const { gateway } = await setUp();
  const attempts: string[] = [];
  const authtoken = () => {
    attempts.push('attempt');
    if (attempts.length === 1) throw new Error('the vault is sealed');
    return gateway.authtoken;
  };
  const { agent } = agentOf(gateway, { authtoken });
  const reasons: unknown[] = [];
  agent.on('log', ({ reason }) => reasons.push(reason));
  await online(agent);
  expect(reasons[0]).toMatch(/^the vault is sealed\b/);
});
