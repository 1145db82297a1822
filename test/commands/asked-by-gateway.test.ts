import { once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { agentSettings, managementClientOf, startTestGateway } from '../support/gateway.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** What the operator of a gateway makes agents do. */
async function online(connector: string, env: Record<string, string> = {}) {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const client = await managementClientOf(gateway);
  const agent = AgentProcess.inTest(temporaryFolder(), {
    ...{ ...agentSettings(gateway), AGENT_CONNECTOR: connector },
    ...env,
  });
  await agent.logged('session online');
  const sessionId = async () => String((await client.tunnelSessions.list()).items[0]?.id);
  return { agent, client, sessionId };
}

it.each(CONNECTORS)(
  'an agent that its gateway restarts keeps its process, and has another session (%s)',
  async (connector) => {
    const { agent, client, sessionId } = await online(connector);
    const api = await agent.ready();
    const domain = 'cam.localhost';
    const body = JSON.stringify({ protocol: 'http', forwards_to: 9, domain });
    const headers = { 'content-type': 'application/json' };
    expect((await fetch(`${api}/tunnels`, { method: 'POST', headers, body })).status).toBe(200);
    const [before, from] = [await sessionId(), agent.lines.length];
    await client.tunnelSessions.restart(before);
    await agent.logged('restarting', from);
    await agent.logged('tunnel online', from);
    expect(await sessionId()).not.toBe(before);
    const { items } = await client.endpoints.list();
    expect(items.map(({ public_url }) => new URL(String(public_url)).hostname)).toEqual([domain]);
    const again = agent.lines.length;
    await client.tunnelSessions.restart(await sessionId());
    await agent.logged('tunnel online', again);
  },
);

it.each(CONNECTORS)(
  'an agent that its gateway stops ends with 0, as a service so that it stays stopped (%s)',
  async (connector) => {
    for (const [env, expected] of [
      [{}, 0],
      [{ NOTIFY_SOCKET: '/nowhere' }, 6],
    ] as const) {
      const { agent, client, sessionId } = await online(connector, env);
      const ended = once(agent.child, 'exit');
      await client.tunnelSessions.stop(await sessionId());
      expect(await ended).toEqual([expected, null]);
    }
  },
);
