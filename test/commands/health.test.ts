import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent, temporaryFolder } from '../support/agent-process.ts';

it('device-agent health says by its exit code whether the agent is alive', async () => {
  const [folder, remove] = temporaryFolder();
  onTestFinished(remove);
  const agent = AgentProcess.start(folder);
  const env = { AGENT_PORT: new URL(await agent.api()).port };
  expect(await deviceAgent(['health'], folder, env)).toEqual({ code: 0, stdout: 'alive\n', stderr: '' });
  await agent.end();
  expect(await deviceAgent(['health'], folder, env)).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('no agent'),
  });
});
