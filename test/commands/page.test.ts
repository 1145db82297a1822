import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { OneTimeCodes } from '../../src/lib/http/one-time-code.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('device-agent page prints where the page is, and a link that only holders of the API token can make', async () => {
  const folder = temporaryFolder();
  const codes = new OneTimeCodes();
  const agent = AgentProcess.start(folder);
  onTestFinished(async () => void (await agent.end()));
  const url = await agent.ready();
  const remote = String((await agent.logged('remote API online')).url);
  const env = { AGENT_PORT: new URL(url).port };
  const { stdout } = await deviceAgent(['page', '--json'], folder, env);
  const page = JSON.parse(stdout);
  expect(page.local).toBe(url);
  const [address, code = ''] = page.link.split('/#code=');
  expect(address).toBe(remote);
  const token = readFileSync(join(folder, 'data/api-token'), 'utf8').trim();
  expect(codes.use(token, code)).not.toBeNull();
  expect((await deviceAgent(['page'], folder, env)).stdout).toMatch(
    /^On this device: {2}http.*\nFrom elsewhere: {2}https/,
  );
});

it('device-agent page exits with 3 when no agent answers', async () => {
  const { code, stderr } = await deviceAgent(['page'], temporaryFolder(), { AGENT_PORT: '1' });
  expect([code, stderr]).toEqual([3, expect.stringContaining('no agent answers')]);
});
