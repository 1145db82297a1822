import { existsSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Agent, startAgent } from '../../src/agent/agent.ts';
import { ManagementClient } from '../../src/management/client.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { Disk, NO_MOUNT } from '../support/disk.ts';
import { startTestGateway } from '../support/gateway.ts';
import { unless } from '../support/requirements.ts';
import { recordingLog } from '../support/silent-log.ts';

async function start(dataDir: string, gateway: Record<string, string> = {}) {
  const { log, lines } = recordingLog();
  const env = { DATA_DIR: dataDir, AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0', ...gateway };
  const agent: Agent = await startAgent(loadSettings(env, dataDir), log);
  onTestFinished(() => agent.stop());
  await agent.started;
  const api = String(lines.find(({ msg }) => msg === 'local API listening')?.url);
  return { agent, api, lines };
}

const post = (api: string, domain: string) =>
  fetch(`${api}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ protocol: 'http', forwards_to: 9, domain }),
  });

/** A gateway apart, which keeps no file open on the agent's disk: such a disk could not be made read-only by hand. */
async function gatewayApart(): Promise<Record<string, string>> {
  const { authtoken, sessionAddress, caFile, close } = await startTestGateway();
  onTestFinished(close);
  return {
    NGROK_AUTHTOKEN: authtoken,
    NGROK_SERVER_ADDR: sessionAddress,
    NGROK_CA_CERT: caFile,
    AGENT_DOMAIN: 'agent.localhost',
  };
}

async function ready(api: string): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!(await fetch(`${api}/readyz`)).ok) {
    if (performance.now() > deadline) throw new Error('the agent did not become ready');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

describe('on a disk that has become read-only', unless(NO_MOUNT), () => {
  it('the agent stops in order, restarts with its tunnels, and reports what cannot be saved', async () => {
    const disk = Disk.mount();
    const dataDir = join(disk.path, 'data');
    const gateway = await gatewayApart();
    const first = await start(dataDir, gateway);
    await ready(first.api);
    expect((await post(first.api, 'cam.localhost')).status).toBe(200);
    disk.remount('ro');
    await first.agent.stop();

    const { agent, api, lines } = await start(dataDir, gateway);
    await ready(api);
    expect(lines.find(({ msg }) => String(msg).startsWith('data folder is read-only'))).toMatchObject({
      folder: dataDir,
      reason: expect.stringContaining('remount,rw'),
    });
    await expect(start(dataDir, gateway)).rejects.toThrow('another agent');
    const refused = await post(api, 'door.localhost');
    expect([refused.status, await refused.json()]).toEqual([
      500,
      expect.objectContaining({ error_code: 'ERR_AGENT_NOT_PERSISTED' }),
    ]);
    expect((await fetch(`${api}/tunnels/cam`, { method: 'DELETE' })).status).toBe(500);
    await ready(api);
    const domains = (await (await fetch(`${api}/tunnels`)).json()) as { domain: string }[];
    expect(domains.map(({ domain }) => domain)).toEqual(['cam.localhost']);

    disk.remount('rw');
    await expect(start(dataDir, gateway)).rejects.toThrow('another agent');
    expect((await post(api, 'door.localhost')).status).toBe(200);
    await agent.stop();
    await start(dataDir, gateway);
  });

  it('the agent starts even on a full disk; without room for its API token it refuses all remote calls', async () => {
    const disk = Disk.mount('size=1m,nr_inodes=40');
    const dataDir = join(disk.path, 'data');
    const gateway = await gatewayApart();
    const first = await start(dataDir, gateway);
    await ready(first.api);
    expect((await post(first.api, 'cam.localhost')).status).toBe(200);
    await first.agent.stop();
    rmSync(join(dataDir, 'api-token'));
    for (let n = 0; statfsSync(disk.path).ffree > 0; n++) writeFileSync(join(disk.path, `filler-${n}`), '');

    const { agent, api, lines } = await start(dataDir, gateway);
    await ready(api);
    expect(lines.find(({ msg }) => String(msg).startsWith('data folder is read-only or full'))).toMatchObject({
      reason: expect.stringContaining('df -i'),
    });
    expect(lines.find(({ msg }) => String(msg).startsWith('remote API disabled'))).toMatchObject({
      reason: expect.stringMatching(/api-token.*ENOSPC/),
    });
    await expect(start(dataDir, gateway)).rejects.toThrow('another agent');
    expect((await post(api, 'door.localhost')).status).toBe(500);

    rmSync(join(disk.path, 'filler-0'));
    await agent.reload(loadSettings({ DATA_DIR: dataDir, ...gateway }, dataDir));
    expect(existsSync(join(dataDir, 'api-token'))).toBe(true);
  });

  it('the embedded gateway starts with its existing accounts, and accepts no changes', async () => {
    const disk = Disk.mount('size=8m');
    const first = AgentProcess.start(disk.path);
    expect((await post(await first.ready(), 'cam.localhost')).status).toBe(200);
    const apiKey = (await deviceAgent(['gateway', 'api-key', 'create'], disk.path)).stdout.trim();
    expect(await first.end()).toBe(0);
    disk.remount('ro');

    const again = AgentProcess.start(disk.path);
    onTestFinished(async () => void (await again.end()));
    const { addresses } = (await (await fetch(`${await again.ready()}/status`)).json()) as {
      addresses: Record<string, string>;
    };
    const ca = readFileSync(String(addresses.gateway_ca), 'utf8');
    const client = new ManagementClient({ baseUrl: String(addresses.gateway_api), apiKey, ca, retries: 0 });
    expect((await client.endpoints.list()).items).toHaveLength(2);
    await expect(client.botUsers.create({})).rejects.toMatchObject({ status: 503 });
    expect((await client.botUsers.list()).items).toHaveLength(1);
  });

  it('the error of a first start says what to do', async () => {
    const disk = Disk.mount();
    disk.remount('ro');
    await expect(start(join(disk.path, 'data'))).rejects.toThrow(
      /cannot use the data folder .*data: EROFS.*remount,rw/,
    );
  });

  it.each([3, 4, 5, 6, 7])('a disk with room for %i files is an error that says what to do', async (files) => {
    const disk = Disk.mount(`size=1m,nr_inodes=${files}`);
    await expect(start(join(disk.path, 'data'))).rejects.toMatchObject({
      name: 'OperatorError',
      message: expect.stringMatching(/^cannot \w+ .*\/data.*ENOSPC.*df -i/),
    });
  });
});
