import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { startTestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';
import { Device } from './device.ts';

const folder = sharedFolder();

it('a tunnel whose policy names people whom the gateway does not have says so, until its policy is changed', async () => {
  const service = await startHttpService((_, res) => void res.end('hello'));
  onTestFinished(() => service.close());
  const device = await Device.start(folder);
  onTestFinished(async () => void (await device.agent.end()));
  const policy = signInOf('jo@example.com');
  const warning = expect.stringMatching(/config\.people: jo@example\.com may not come in: unknown to this gateway/);
  const created = await device.post({ forwards_to: service.url, domain: 'warned', policy });
  expect(await created.json()).toMatchObject({ notice: expect.stringContaining('policy: on_http_request[0]') });
  expect(await device.tunnels()).toMatchObject([{ policy_warnings: [warning] }]);
  const change = async (changed: object) => {
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ policy: changed });
    return (await fetch(`${device.api}/tunnels/warned`, { method: 'PATCH', headers, body })).json();
  };
  expect(await change({})).not.toHaveProperty('policy_warnings');
  expect(await change(policy)).toMatchObject({ policy_warnings: [warning] });
});

it('a separate gateway tells the native connector, and the command line prints it', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const own = temporaryFolder();
  const agent = AgentProcess.inTest(own, {
    ...{ NGROK_AUTHTOKEN: gateway.authtoken, NGROK_SERVER_ADDR: gateway.sessionAddress },
    ...{ NGROK_CA_CERT: gateway.caFile, AGENT_CONNECTOR: 'native' },
  });
  const env = { AGENT_PORT: new URL(await agent.ready()).port };
  const file = join(own, 'policy.json');
  writeFileSync(file, JSON.stringify(signInOf('jo@example.com')));
  const warning = 'config.people: jo@example.com may not come in: unknown to this gateway';
  const started = await deviceAgent(['tunnels', 'start', '8001', '-d', 'mine.localhost', '--policy', file], own, env);
  expect(started).toMatchObject({ code: 0, stderr: expect.stringContaining(warning) });
  const shown = await deviceAgent(['tunnels', 'show', 'mine'], own, env);
  expect(shown.stdout).toMatch(new RegExp(`^Warning: +on_http_request.*${warning}`, 'm'));
  expect(await agent.end()).toBe(0);
});

/** A policy that lets one person in. */
function signInOf(email: string) {
  return { on_http_request: [{ actions: [{ type: 'gateway-sign-in', config: { people: [email] } }] }] };
}
