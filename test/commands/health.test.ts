import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('health exits with 0 when the agent is alive, else with 3', async () => {
  const folder = temporaryFolder();
  const agent = AgentProcess.start(folder);
  const env = { AGENT_PORT: new URL(await agent.api()).port };
  expect(await deviceAgent(['health'], folder, env)).toEqual({ code: 0, stdout: 'alive\n', stderr: '' });
  expect((await deviceAgent(['health', '--json'], folder, env)).stdout).toBe('{"status":"alive"}\n');
  await agent.end();
  expect(await deviceAgent(['health'], folder, env)).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('no agent'),
  });
});

it('gateway health exits with 0 when the gateway is alive, else with 3', async () => {
  const folder = temporaryFolder();
  const gateway = await GatewayProcess.start(folder);
  onTestFinished(() => gateway.kill());
  const env = { GATEWAY_HTTPS_PORT: String(gateway.httpsPort), GATEWAY_HOST: '0.0.0.0' };
  expect(await deviceAgent(['gateway', 'health'], folder, env)).toEqual({ code: 0, stdout: 'alive\n', stderr: '' });
  await gateway.kill();
  expect(await deviceAgent(['gateway', 'health'], folder, env)).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('gateway unreachable'),
  });
});

it('commands reach a gateway whose load balancer is on this machine', async () => {
  const folder = temporaryFolder();
  const balanced = { GATEWAY_LOAD_BALANCERS: '127.0.0.1' };
  const gateway = await GatewayProcess.start(folder, balanced);
  onTestFinished(() => gateway.kill());
  const env = { ...balanced, GATEWAY_HTTPS_PORT: String(gateway.httpsPort) };
  const { stdout: health } = await deviceAgent(['gateway', 'health', '--json'], folder, env);
  expect(JSON.parse(health)).toEqual({ status: 'alive' });
  expect(await deviceAgent(['gateway', 'devices'], folder, env)).toMatchObject({ code: 0 });
  const { stdout } = await deviceAgent(['gateway', 'doctor'], folder, env);
  expect(stdout).toContain(`the gateway runs and answers at 127.0.0.1:${gateway.httpsPort}`);
});
