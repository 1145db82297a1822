import { networkInterfaces } from 'node:os';
import { describe, expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { makeFolder } from '../support/temporary-folder.ts';

const hasIpv6 = Object.values(networkInterfaces()).some((found) => found?.some(({ address }) => address === '::1'));

describe.runIf(hasIpv6)('an agent whose API is on the loopback of IPv6', () => {
  it('is reached there by the command line, and is sound to doctor', async () => {
    const [folder, remove] = makeFolder();
    const agent = AgentProcess.start(folder, { AGENT_HOST: '::1' });
    onTestFinished(async () => {
      await agent.end('SIGKILL');
      remove();
    });
    const { origin, port } = new URL(await agent.ready());
    expect(origin).toBe(`http://[::1]:${port}`);
    const env = { AGENT_HOST: '::1', AGENT_PORT: port };
    expect(await deviceAgent(['tunnels', '--json'], folder, env)).toMatchObject({ code: 0, stdout: '[]\n' });
    const { code, stdout } = await deviceAgent(['doctor'], folder, env);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/\n✔ Agent {2,}version .* running[\s\S]*Nothing is wrong/),
    ]);
  });
});
