import { describe, expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { NO_IPV6, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

describe('an agent whose API listens on the IPv6 loopback address', unless(NO_IPV6), () => {
  it('answers the command line, and doctor finds no problems', async () => {
    const folder = temporaryFolder();
    const agent = AgentProcess.start(folder, { AGENT_HOST: '::1' });
    onTestFinished(async () => {
      await agent.end('SIGKILL');
    });
    const { origin, port } = new URL(await agent.ready());
    expect(origin).toBe(`http://[::1]:${port}`);
    const env = { AGENT_HOST: '::1', AGENT_PORT: port };
    expect(await deviceAgent(['tunnels', '--json'], folder, env)).toMatchObject({ code: 0, stdout: '[]\n' });
    const { code, stdout } = await deviceAgent(['doctor'], folder, env);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/\n✔ Agent {2,}version .* running[\s\S]*No problems found/),
    ]);
  });
});
