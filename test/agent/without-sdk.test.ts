import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { agentSettings, getPublic, startTestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** A folder, and the environment of a board for which the SDK has no binary. */
function board() {
  const folder = temporaryFolder();
  const file = join(folder, 'board.cjs');
  writeFileSync(file, "Object.defineProperty(process, 'arch', { value: 'riscv64' });");
  return { folder, env: { NODE_OPTIONS: `--require ${file}`, AGENT_CONNECTOR: 'sdk' } };
}

it('an agent for whose platform the SDK has no binary uses the native connector, and says so', async () => {
  const { folder, env } = board();
  const gateway = await startTestGateway();
  const upstream = await startHttpService((_, res) => void res.end('from the board'));
  const agent = AgentProcess.start(folder, {
    ...env,
    ...agentSettings(gateway),
  });
  onTestFinished(async () => {
    await agent.end('SIGKILL');
    await gateway.close();
    await upstream.close();
  });
  const api = await agent.ready();
  const reason = "Cannot find module '@ngrok/ngrok-linux-riscv64-gnu'";
  expect(await agent.logged('the SDK has no binary for this platform: using the native connector')).toMatchObject({
    level: 'info',
    reason,
  });
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ forwards_to: upstream.url, domain: 'board.localhost' });
  const { url } = (await (await fetch(`${api}/tunnels`, { method: 'POST', headers, body })).json()) as { url: string };
  expect(await getPublic(gateway, url)).toMatchObject({ status: 200, body: 'from the board' });
});

it.each([{}, { NGROK_SERVER_ADDR: 'connect.eu.ngrok-agent.com:443' }])(
  'an agent for whose platform the SDK has no binary refuses ngrok’s cloud, and says what to do: %j',
  async (address) => {
    const { folder, env } = board();
    const settings = { ...env, ...address, NGROK_AUTHTOKEN: 'x', AGENT_PORT: '0', LOG_FORMAT: 'json' };
    const { code, stdout, stderr } = await deviceAgent([], folder, settings);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^device-agent: .* has no binary here \(.*\): install device-agent again without --omit=optional; if .*-riscv64 is not supported, use a gateway of your own and set NGROK_SERVER_ADDR to its address\n$/,
    );
    expect(stdout).not.toContain('unexpected error');
  },
);
